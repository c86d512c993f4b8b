"""The learner: slots beside their weights, one traced update, params with a nearest name."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.hyperparams import ParamsError
from lingpipe.learner.learner import Learner
from lingpipe.learner.optimizers import Adam, Momentum
from lingpipe.learner.schedules import Constant, InverseSquareRoot


def make_learner(**values: Any) -> Learner:
    values = {"schedule": Constant.Params(value=0.1), **values}
    return Learner.Params(**values).build()


def make_weights() -> dict[str, tf.Variable]:
    return {"layer_0/kernel": tf.Variable([[1.0, 2.0]]), "layer_0/bias": tf.Variable([3.0])}


def make_update(
    learner: Learner, weights: dict[str, tf.Variable], slots: dict[str, tf.Variable]
) -> Callable[..., None]:
    return tf.function(
        lambda gradients, rate, step: learner.apply(weights, gradients, slots, rate, step)
    )


def test_slots_are_named_by_weight_and_slot() -> None:
    slots = make_learner(optimizer=Adam.Params()).create_slots(make_weights())
    assert list(slots) == [
        "layer_0/kernel/m",
        "layer_0/kernel/v",
        "layer_0/bias/m",
        "layer_0/bias/v",
    ]
    assert [tuple(slot.shape) for slot in slots.values()] == [(1, 2), (1, 2), (1,), (1,)]
    assert not any(slot.trainable for slot in slots.values())
    assert slots["layer_0/bias/v"].name == "layer_0/bias/v:0"


def test_slots_live_on_the_device_of_their_weight() -> None:
    devices = [device.name for device in tf.config.list_logical_devices("CPU")[:2]]
    weights = {}
    for index, device in enumerate(devices):
        with tf.device(device):
            weights[f"stage_{index}"] = tf.Variable([1.0])
    slots = make_learner().create_slots(weights)
    for name, slot in slots.items():
        assert slot.device == weights[name.rsplit("/", 1)[0]].device
    assert len({slot.device for slot in slots.values()}) == len(devices)


def test_apply_moves_every_weight_by_its_own_gradient_and_slot() -> None:
    learner = make_learner(optimizer=Momentum.Params(momentum=0.5))
    weights = make_weights()
    slots = learner.create_slots(weights)
    update = make_update(learner, weights, slots)
    gradients = {"layer_0/kernel": tf.constant([[1.0, -1.0]]), "layer_0/bias": tf.constant([4.0])}
    for step in (1, 2):  # Velocities 1 and 1.5 times the gradient, at a rate of 0.1.
        update(gradients, tf.constant(0.1), tf.constant(step, tf.int64))
    np.testing.assert_allclose(weights["layer_0/kernel"].numpy(), [[0.75, 2.25]], rtol=1e-6)
    np.testing.assert_allclose(weights["layer_0/bias"].numpy(), [2.0], rtol=1e-6)
    np.testing.assert_allclose(slots["layer_0/bias/velocity"].numpy(), [6.0], rtol=1e-6)


@pytest.mark.parametrize("optimizer", [Adam.Params(), Momentum.Params(momentum=0.9)])
def test_steps_and_rates_do_not_trace_again(optimizer: Any) -> None:
    learner = make_learner(optimizer=optimizer)
    weights = make_weights()
    update = make_update(learner, weights, learner.create_slots(weights))
    for step in range(1, 6):
        gradients = {path: tf.ones(weight.shape) for path, weight in weights.items()}
        update(gradients, tf.constant(0.1 / step), tf.constant(step, tf.int64))
    assert update.experimental_get_tracing_count() == 1


def test_a_stage_without_weights_has_nothing_to_do() -> None:
    learner = make_learner()
    assert learner.create_slots({}) == {}
    make_update(learner, {}, {})({}, tf.constant(0.1), tf.constant(1, tf.int64))


def test_learning_rate_is_that_of_the_schedule() -> None:
    learner = make_learner(schedule=InverseSquareRoot.Params(peak=2.0, warmup_steps=4))
    assert learner.learning_rate(1) == 0.5
    assert learner.learning_rate(16) == 1.0


def test_only_float32_weights_are_moved() -> None:
    with pytest.raises(TypeError, match=r"'half' is bfloat16; learners move float32 weights only"):
        make_learner().create_slots({"half": tf.Variable(tf.zeros([2], tf.bfloat16))})


@pytest.mark.parametrize(
    ("make_gradient", "error", "words"),
    [
        (lambda: None, ValueError, "Weight 'w' has no gradient. Give zeros if the loss does not"),
        (lambda: tf.zeros([3]), ValueError, r"'w' has shape \(3,\), the weight \(2,\)"),
        (
            lambda: tf.zeros([2], tf.bfloat16),
            TypeError,
            "'w' is bfloat16; it must be a dense float32",
        ),
        (
            lambda: tf.IndexedSlices(tf.zeros([1]), tf.constant([0]), tf.constant([2])),
            TypeError,
            "'w' is sparse; it must be a dense float32",
        ),
    ],
)
def test_a_gradient_that_does_not_fit_is_refused_by_name(
    make_gradient: Callable[[], Any], error: type[Exception], words: str
) -> None:
    learner = make_learner()
    weights = {"w": tf.Variable([1.0, 1.0])}
    slots = learner.create_slots(weights)
    gradient = make_gradient()
    gradients = {} if gradient is None else {"w": gradient}
    with pytest.raises(error, match=words):
        learner.apply(weights, gradients, slots, tf.constant(0.1), tf.constant(1))
    np.testing.assert_array_equal(weights["w"].numpy(), [1.0, 1.0])


@pytest.mark.parametrize("limit", [0.0, -1.0, float("inf"), float("nan")])
def test_a_clipping_limit_must_be_positive(limit: float) -> None:
    with pytest.raises(ParamsError, match=r"clip_global_norm \(.*\) must be a finite number great"):
        make_learner(clip_global_norm=limit)


def test_params_reach_the_fields_of_optimizer_and_schedule() -> None:
    params = Learner.Params(schedule=InverseSquareRoot.Params(peak=1.0, warmup_steps=8))
    params.override("optimizer.beta_2", "0.98", text=True)
    params.override("schedule.warmup_steps", "4000", text=True)
    params.override("clip_global_norm", "1.5", text=True)
    learner = params.build()
    assert isinstance(learner.optimizer, Adam)
    assert learner.optimizer.params.beta_2 == 0.98
    assert learner.schedule.params.warmup_steps == 4000
    assert learner.params.clip_global_norm == 1.5
    assert Learner.Params.from_text(params.to_text()) == params


def test_the_schedule_must_be_chosen() -> None:
    with pytest.raises(ParamsError, match=r"REQUIRED.*schedule"):
        Learner.Params().build()
