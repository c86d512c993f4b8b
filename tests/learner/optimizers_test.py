"""Optimisers against the papers' rules written in NumPy, and against Keras."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.hyperparams import ParamsError
from lingpipe.learner.optimizers import Adam, Momentum, Optimizer

SHAPE = (5, 3)
STEPS = 50
FALLING = [0.02 / math.sqrt(step) for step in range(1, STEPS + 1)]
CONSTANT = [0.01] * STEPS


def gradients(scale: float = 1.0) -> list[np.ndarray]:
    generator = np.random.default_rng(3)
    return [(scale * generator.normal(size=SHAPE)).astype(np.float32) for _ in range(STEPS)]


def initial() -> np.ndarray:
    return np.random.default_rng(4).normal(size=SHAPE).astype(np.float32)


def make_update(
    optimizer: Optimizer, variable: tf.Variable, slots: dict[str, tf.Variable]
) -> Callable[..., None]:
    """The optimiser's update of one weight as one traced function of (gradient, rate, step)."""

    @tf.function(
        input_signature=[
            tf.TensorSpec(variable.shape, tf.float32),
            tf.TensorSpec([], tf.float32),
            tf.TensorSpec([], tf.int64),
        ]
    )
    def update(gradient: tf.Tensor, learning_rate: tf.Tensor, step: tf.Tensor) -> None:
        optimizer.update(variable, gradient, slots, learning_rate, step)

    return update


def make_slots(optimizer: Optimizer, variable: tf.Variable) -> dict[str, tf.Variable]:
    return {name: tf.Variable(value) for name, value in optimizer.slots(variable).items()}


def run(optimizer: Optimizer, rates: Sequence[float] = FALLING, scale: float = 1.0) -> np.ndarray:
    """The weight after all steps."""
    variable = tf.Variable(initial())
    update = make_update(optimizer, variable, make_slots(optimizer, variable))
    for step, (gradient, rate) in enumerate(zip(gradients(scale), rates, strict=True), start=1):
        update(gradient, rate, step)
    return variable.numpy()


def numpy_adam(beta_1: float, beta_2: float, epsilon: float, scale: float = 1.0) -> np.ndarray:
    """Algorithm 1 of Kingma & Ba 2015, line by line, in float64."""
    theta = initial().astype(np.float64)
    m = v = np.zeros(SHAPE)
    for t, (g, alpha) in enumerate(zip(gradients(scale), FALLING, strict=True), start=1):
        m = beta_1 * m + (1 - beta_1) * g
        v = beta_2 * v + (1 - beta_2) * np.square(g.astype(np.float64))
        m_hat = m / (1 - beta_1**t)
        v_hat = v / (1 - beta_2**t)
        theta = theta - alpha * m_hat / (np.sqrt(v_hat) + epsilon)
    return theta


def numpy_momentum(momentum: float, nesterov: bool) -> np.ndarray:
    """Eqs. 9 and 10 of Goyal et al. 2017; with Nesterov's look-ahead as PyTorch documents it."""
    w = initial().astype(np.float64)
    u = np.zeros(SHAPE)
    for g, eta in zip(gradients(), FALLING, strict=True):
        u = momentum * u + g
        w = w - eta * (g + momentum * u if nesterov else u)
    return w


def run_keras(optimizer: Any, rates: Sequence[float]) -> np.ndarray:
    variable = tf.Variable(initial())
    optimizer.build([variable])
    for gradient, rate in zip(gradients(), rates, strict=True):
        optimizer.learning_rate = rate
        optimizer.apply([tf.constant(gradient)], [variable])
    return variable.numpy()


@pytest.mark.parametrize(
    ("beta_1", "beta_2", "epsilon"),
    [(0.9, 0.999, 1e-8), (0.9, 0.98, 1e-9), (0.0, 0.5, 1e-3), (0.9, 0.999, 1.0)],
)
def test_adam_is_algorithm_1_of_its_paper(beta_1: float, beta_2: float, epsilon: float) -> None:
    optimizer = Adam.Params(beta_1=beta_1, beta_2=beta_2, epsilon=epsilon).build()
    np.testing.assert_allclose(
        run(optimizer), numpy_adam(beta_1, beta_2, epsilon), rtol=1e-5, atol=1e-6
    )


def test_adam_keeps_epsilon_beside_the_corrected_root_for_tiny_gradients() -> None:
    expected = numpy_adam(0.9, 0.999, epsilon=1e-8, scale=1e-8)
    moved = np.abs(expected - initial()).max()
    actual = run(Adam.Params().build(), scale=1e-8)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-3 * moved)


def test_adam_agrees_with_keras() -> None:
    keras = tf.keras.optimizers.Adam(beta_1=0.9, beta_2=0.98, epsilon=1e-9)
    optimizer = Adam.Params(beta_2=0.98, epsilon=1e-9).build()
    np.testing.assert_allclose(run(optimizer), run_keras(keras, FALLING), rtol=1e-5, atol=1e-6)


def test_first_adam_update_is_the_learning_rate_in_the_sign_of_the_gradient() -> None:
    optimizer = Adam.Params(epsilon=1e-30).build()
    variable = tf.Variable(tf.zeros([4]))
    update = make_update(optimizer, variable, make_slots(optimizer, variable))
    update([1e-3, -1.0, 7.0, -1e3], 0.5, 1)
    np.testing.assert_allclose(variable.numpy(), [-0.5, 0.5, -0.5, 0.5], rtol=2e-7)


@pytest.mark.parametrize("step", [2, 1000, 10**6, 2**24 + 1, 2**40])
def test_bias_correction_is_right_at_any_step(step: int) -> None:
    optimizer = Adam.Params().build()
    variable = tf.Variable([1.0])
    slots = {"m": tf.Variable([0.25]), "v": tf.Variable([0.5])}
    make_update(optimizer, variable, slots)([0.75], 0.1, step)
    beta_1, beta_2 = float(np.float32(0.9)), float(np.float32(0.999))
    m = beta_1 * 0.25 + (1 - beta_1) * 0.75
    v = beta_2 * 0.5 + (1 - beta_2) * 0.75**2
    m_hat, v_hat = (
        m / -math.expm1(step * math.log(beta_1)),
        v / -math.expm1(step * math.log(beta_2)),
    )
    assert 1.0 - variable.numpy()[0] == pytest.approx(0.1 * m_hat / math.sqrt(v_hat), rel=2e-6)


@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)])
def test_momentum_is_the_published_rule(momentum: float, nesterov: bool) -> None:
    optimizer = Momentum.Params(momentum=momentum, nesterov=nesterov).build()
    np.testing.assert_allclose(
        run(optimizer), numpy_momentum(momentum, nesterov), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)])
def test_momentum_agrees_with_keras_at_a_constant_rate(momentum: float, nesterov: bool) -> None:
    keras = tf.keras.optimizers.SGD(0.01, momentum=momentum, nesterov=nesterov)
    optimizer = Momentum.Params(momentum=momentum, nesterov=nesterov).build()
    np.testing.assert_allclose(
        run(optimizer, CONSTANT), run_keras(keras, CONSTANT), rtol=1e-5, atol=1e-6
    )


def all_optimizers() -> Iterator[Optimizer]:
    yield Adam.Params().build()
    yield Momentum.Params().build()
    yield Momentum.Params(momentum=0.9).build()
    yield Momentum.Params(momentum=0.9, nesterov=True).build()


@pytest.mark.parametrize("optimizer", all_optimizers(), ids=lambda o: repr(o.params))
def test_going_on_from_weights_slots_and_step_is_exact_to_the_bit(optimizer: Optimizer) -> None:
    variable = tf.Variable(initial())
    slots = make_slots(optimizer, variable)
    update = make_update(optimizer, variable, slots)
    for step in range(1, STEPS + 1):
        if step == 24:  # A new process: all that lives on are plain numbers.
            variable = tf.Variable(variable.numpy())
            slots = {name: tf.Variable(slot.numpy()) for name, slot in slots.items()}
            update = make_update(optimizer, variable, slots)
        update(gradients()[step - 1], FALLING[step - 1], step)
    np.testing.assert_array_equal(variable.numpy(), run(optimizer))


@pytest.mark.parametrize("optimizer", all_optimizers(), ids=lambda o: repr(o.params))
def test_slots_start_as_float32_zeros_of_the_weights_shape(optimizer: Optimizer) -> None:
    slots = optimizer.slots(tf.Variable(tf.ones([2, 3])))
    assert tuple(slots) == optimizer.slot_names
    for value in slots.values():
        assert value.dtype == tf.float32
        np.testing.assert_array_equal(value, np.zeros([2, 3]))


def test_plain_gradient_descent_has_no_slot() -> None:
    assert Momentum.Params().build().slot_names == ()
    assert Momentum.Params(momentum=0.9).build().slot_names == ("velocity",)


@pytest.mark.parametrize(
    ("params", "words"),
    [
        (Adam.Params(beta_1=1.0), r"beta_1 \(1.0\) must be in \[0, 1\)"),
        (Adam.Params(beta_2=-0.1), r"beta_2 \(-0.1\) must be in \[0, 1\)"),
        (Adam.Params(beta_2=1 - 1e-9), r"beta_2 \(0.999999999\) .*also as a float32"),
        (Adam.Params(epsilon=0.0), r"epsilon \(0.0\) must be greater than 0"),
        (Momentum.Params(momentum=1.5), r"momentum \(1.5\) must be in \[0, 1\)"),
        (Momentum.Params(nesterov=True), r"nesterov needs a momentum greater than 0"),
    ],
)
def test_inconsistent_params_are_refused_with_their_values(
    params: Optimizer.Params, words: str
) -> None:
    with pytest.raises(ParamsError, match=words):
        params.build()
