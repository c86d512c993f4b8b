"""What every layer promises, tried on each that is named in cases.py.

It builds from its params alone, runs in a `tf.function` as it does eagerly, saves and restores, is
foretold by its cost, has right derivatives, drops the same units of an example in whatever
micro-batch, and computes in bfloat16 and float16. What cell lists promise across stages is in
stages_test.py.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.base.context import Context
from lingpipe.base.layer import Layer, Scope
from lingpipe.hyperparams import Params
from tests.conformance.cases import CASES, EXAMPLES, Case, specs_of

every_case = pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))

# Tracing a whole model takes seconds, and each of its cells is a case.
PARTS = {name: case for name, case in CASES.items() if name != "transformer"}
every_part = pytest.mark.parametrize("case", PARTS.values(), ids=list(PARTS))


@dataclasses.dataclass(frozen=True)
class Built:
    """A case, built."""

    case: Case
    layer: Layer
    variables: Mapping[str, tf.Variable]

    def run(
        self, inputs: Any, dtype: tf.DType = tf.float32, training: bool = True, start: int = 0
    ) -> Any:
        """The outputs for `inputs`, the examples from number `start` on."""
        rows = slice(start, None if inputs is None else start + rows_of(inputs))
        batch = {key: value[rows] for key, value in self.case.batch.items()}
        return self.layer(inputs, self.context(batch, dtype, training, start))

    def context(
        self, batch: Mapping[str, Any], dtype: tf.DType, training: bool, start: int
    ) -> Context:
        """A context in which the layer sees what it asked for and nothing else."""
        keys = self.case.params.batch_keys()
        return Context(
            training=training,
            step=2**33,
            seed=7,
            first_example=start,
            compute_dtype=dtype,
            batch={key: tf.convert_to_tensor(batch[key]) for key in keys},
        )


def build(case: Case, seed: int = 1) -> Built:
    """Builds a case as a cell of that name would be built."""
    scope = Scope(seed=seed)
    return Built(case, case.params.build(scope.child("layer")), scope.variables)


def rows_of(arrays: Any) -> int:
    """Number of examples."""
    return tf.nest.flatten(arrays)[0].shape[0]


def tensors(arrays: Any, dtype: tf.DType = tf.float32) -> Any:
    """Arrays as tensors, floats in `dtype`."""

    def convert(array: np.ndarray) -> tf.Tensor:
        tensor = tf.convert_to_tensor(array)
        return tf.cast(tensor, dtype) if tensor.dtype.is_floating else tensor

    return None if arrays is None else tf.nest.map_structure(convert, arrays)


def assert_close(left: Any, right: Any, **tolerance: float) -> None:
    """Equal structures of nearly equal tensors."""
    tf.nest.assert_same_structure(left, right)
    for a, b in zip(tf.nest.flatten(left), tf.nest.flatten(right), strict=True):
        np.testing.assert_allclose(tf.cast(a, tf.float64), tf.cast(b, tf.float64), **tolerance)


@every_part
def test_it_runs_in_a_function_as_it_does_eagerly(case: Case) -> None:
    built, inputs = build(case), tensors(case.inputs)
    outputs = tf.function(lambda: built.run(inputs), autograph=False)()
    assert_close(outputs, built.run(inputs), rtol=1e-4, atol=1e-5)


@every_case
def test_its_cost_foretells_weights_and_outputs(case: Case) -> None:
    built = build(case)
    declared = case.params.all_weights("layer")
    assert {p: tuple(v.shape) for p, v in built.variables.items()} == {
        path: weight.shape for path, weight in declared.items()
    }
    assert sum(weight.size for weight in declared.values()) == sum(
        int(tf.size(variable)) for variable in built.variables.values()
    )
    batch = {key: specs_of(case.batch[key]) for key in case.params.batch_keys()}
    cost = case.params.cost(specs_of(case.inputs), batch)
    assert cost.outputs == specs_of(built.run(tensors(case.inputs)))
    assert isinstance(cost.flops, int) and isinstance(cost.activation_bytes, int)
    assert cost.flops >= 0 and cost.activation_bytes >= 0


@every_case
def test_it_saves_and_restores(case: Case, tmp_path: Path) -> None:
    first, second = build(case, seed=1), build(case, seed=2)
    inputs = tensors(case.inputs)
    path = tf.train.Checkpoint(variables=dict(first.variables)).write(str(tmp_path / "weights"))
    restored = tf.train.Checkpoint(variables=dict(second.variables)).read(path)
    restored.assert_existing_objects_matched()
    assert_close(second.run(inputs), first.run(inputs), rtol=0, atol=0)


@every_case
def test_its_params_survive_as_text(case: Case) -> None:
    assert Params.from_text(case.params.to_text()) == case.params


@every_part
def test_its_derivatives_equal_finite_differences(case: Case) -> None:
    built, inputs = build(case), tensors(case.inputs, tf.float64)
    floats = [t for t in tf.nest.flatten(inputs) if t is not None and t.dtype.is_floating]
    sources = [*map(tf.Variable, floats), *built.variables.values()]

    def value() -> tf.Tensor:
        given = iter(sources)
        fresh = None
        if inputs is not None:
            fresh = tf.nest.map_structure(
                lambda t: tf.identity(next(given)) if t.dtype.is_floating else t, inputs
            )
        outputs = tf.nest.flatten(built.run(fresh, tf.float64))
        return tf.add_n([weighted(output, key) for key, output in enumerate(outputs)])

    with tf.GradientTape() as tape:
        total = value()
    zero = tf.UnconnectedGradients.ZERO  # A cell passes on what it does not use.
    gradients = tape.gradient(total, sources, unconnected_gradients=zero)
    function = tf.function(value, autograph=False)
    for index, (source, gradient) in enumerate(zip(sources, gradients, strict=True)):
        expected, found = both_slopes(function, source, tf.convert_to_tensor(gradient), index)
        assert found == pytest.approx(expected, rel=1e-3, abs=1e-7), source.name


def weighted(output: tf.Tensor, key: int) -> tf.Tensor:
    """The sum of outputs times random numbers, float64."""
    factors = tf.random.stateless_normal(output.shape, [key, 5], dtype=tf.float64)
    return tf.reduce_sum(factors * tf.cast(output, tf.float64))


def both_slopes(
    function: Callable[[], tf.Tensor], source: tf.Variable, gradient: tf.Tensor, key: int
) -> tuple[float, float]:
    """The change of `function` along a random direction of `source`: measured, and by gradient."""
    before = source.numpy()
    direction = 1e-3 * np.random.default_rng(key).normal(size=before.shape)
    up, down = (before + direction).astype(before.dtype), (before - direction).astype(before.dtype)
    source.assign(up)
    high = float(function())
    source.assign(down)
    low = float(function())
    source.assign(before)
    change = up.astype(np.float64) - down.astype(np.float64)
    return high - low, float(np.sum(change * gradient.numpy().astype(np.float64)))


@every_case
def test_an_example_is_treated_alike_in_every_micro_batch(case: Case) -> None:
    """In training; in evaluation where training mixes the examples of a micro-batch."""
    built, inputs, training = build(case), tensors(case.inputs), not case.mixes_examples
    whole = built.run(inputs, training=training)
    parts = [run_slice(built, inputs, start, end, training) for start, end in ((0, 2), (2, 5))]
    for all_rows, *slices in zip(*map(tf.nest.flatten, (whole, *parts)), strict=True):
        together = tf.concat(slices, axis=0) if all_rows.shape.rank else tf.add_n(slices)
        np.testing.assert_allclose(together, all_rows, rtol=1e-5, atol=1e-6)


def run_slice(built: Built, inputs: Any, start: int, end: int, training: bool) -> Any:
    """The outputs for examples start to end."""
    batch = {key: value[start:end] for key, value in built.case.batch.items()}
    part = None if inputs is None else tf.nest.map_structure(lambda x: x[start:end], inputs)
    return built.layer(part, built.context(batch, tf.float32, training, start))


@every_case
@pytest.mark.parametrize(("dtype", "tolerance"), [(tf.bfloat16, 0.05), (tf.float16, 0.01)])
def test_it_computes_in_short_dtypes(case: Case, dtype: tf.DType, tolerance: float) -> None:
    built = build(case)
    wide = built.run(tensors(case.inputs), training=False)
    short = built.run(tensors(case.inputs, dtype), dtype, training=False)
    sums = isinstance(wide, dict) and "loss" in wide
    for a, b in zip(tf.nest.flatten(short), tf.nest.flatten(wide), strict=True):
        assert not sums or a.dtype == tf.float32
        largest = np.abs(b.numpy()).max()
        np.testing.assert_allclose(tf.cast(a, tf.float32), b, atol=tolerance * (largest + 0.02))


@every_part
@pytest.mark.parametrize(("dtype", "tolerance"), [(tf.bfloat16, 0.1), (tf.float16, 0.02)])
def test_its_gradients_in_short_dtypes_are_near_and_float32(
    case: Case, dtype: tf.DType, tolerance: float
) -> None:
    """Those of its weights, in training, from gradients as large as a loss scale makes them."""
    wide, short = (weight_gradients(build(case), each, scale=256.0) for each in (tf.float32, dtype))
    lengths = [np.linalg.norm(gradient) for gradient in wide]
    for found, expected, length in zip(short, wide, lengths, strict=True):
        assert found.dtype == np.float32
        # Some are zero but for rounding, such as that of the bias of attention keys.
        least = max(length, 0.05 * max(lengths))
        assert np.linalg.norm(found - expected) <= tolerance * least


def weight_gradients(built: Built, dtype: tf.DType, scale: float) -> list[np.ndarray]:
    """Gradients of a weighted sum of the outputs, times `scale`, in the weights that learn."""
    weights = [variable for variable in built.variables.values() if variable.trainable]
    with tf.GradientTape() as tape:
        outputs = tf.nest.flatten(built.run(tensors(built.case.inputs, dtype), dtype))
        total = tf.add_n([weighted(output, key) for key, output in enumerate(outputs)])
    zero = tf.UnconnectedGradients.ZERO
    gradients = tape.gradient(total, weights, tf.constant(scale, tf.float64), zero)
    return [tf.convert_to_tensor(gradient).numpy() for gradient in gradients]


def layer_classes() -> Iterator[type[Layer]]:
    """Every layer that the cases build, parts included."""
    for case in CASES.values():
        yield from (type(part) for part in build(case).layer.submodules if isinstance(part, Layer))
        yield case.params.owner


def test_every_layer_of_the_library_is_among_the_cases() -> None:
    bases = {"MultiHeadAttention", "ResidualLayer"}
    known = {cls.__name__ for cls in layer_classes()} | bases
    folder = Path(__file__).parents[2] / "lingpipe" / "layers"
    for path in folder.glob("*.py"):
        for line in path.read_text(encoding="utf-8").splitlines():
            name = line.removeprefix("class ").partition("(")[0]
            if line.startswith("class ") and "class Params(" not in line and is_layer(path, name):
                assert name in known, f"{name} in {path.name} has no case in cases.py"


def is_layer(path: Path, name: str) -> bool:
    """Whether class `name` of the module at `path` is a layer."""
    module = __import__(f"lingpipe.layers.{path.stem}", fromlist=[name])
    found = getattr(module, name)
    return issubclass(found, Layer)


def test_cases_have_several_examples_each() -> None:
    for case in CASES.values():
        arrays = tf.nest.flatten(case.inputs) if case.inputs is not None else []
        assert all(len(array) == EXAMPLES for array in [*arrays, *case.batch.values()])
