"""Cells are measured one by one, and stages are balanced by what was measured.

No test says how long anything takes, but for one: products of large matrices take longer than
additions of a few numbers.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping

import pytest
import tensorflow as tf

from lingpipe.base.context import Context
from lingpipe.base.layer import Layer
from lingpipe.base.spec import Spec
from lingpipe.pipeline.builder import Pipeline
from lingpipe.pipeline.errors import DeviceMemoryError, PipelineError
from lingpipe.pipeline.keeping import Rematerialisation
from lingpipe.pipeline.micro_batch import BatchError
from lingpipe.pipeline.plan import PartitionCosts, make_plan
from lingpipe.pipeline.profile import device_in_words, fingerprint, measure_cells
from lingpipe.pipeline.stage import Stage
from tests.pipeline.small_models import (
    TRANSLATION_MICRO_BATCH,
    Cell,
    Dense,
    Scale,
    Source,
    SquareLoss,
    dense_batch,
    dense_cells,
    make_learner,
    transformer,
)

MICRO_BATCH = {"x": Spec((2, 4)), "y": Spec((2, 4))}


class Slow(Cell):
    """x -> x plus 0 times the sum of a product of large matrices; says that it costs 1."""

    class Params(Cell.Params):
        dim: int = 500

    params: Params

    def __call__(self, inputs: tf.Tensor, context: Context) -> tf.Tensor:
        matrix = tf.fill([self.params.dim, self.params.dim], tf.reduce_mean(inputs))
        for _ in range(4):
            matrix = tf.tanh(matrix @ matrix)
        return inputs + 0.0 * tf.reduce_sum(matrix)


def deceptive_cells() -> dict[str, Layer.Params]:
    """Six cells that all say they cost 1; the third is slow."""
    return {
        "source": Source.Params(),
        "dense_0": Dense.Params(),
        "slow": Slow.Params(),
        "dense_1": Dense.Params(),
        "scale": Scale.Params(),
        "loss": SquareLoss.Params(),
    }


def test_a_cell_that_is_slower_than_it_says_gets_a_stage_of_its_own() -> None:
    cells = deceptive_cells()
    seconds = measure_cells(cells, MICRO_BATCH, "/CPU:0")
    assert list(seconds) == list(cells)
    assert min(seconds.values()) > 0
    assert max(seconds, key=seconds.__getitem__) == "slow"
    assert make_plan(cells, 3, MICRO_BATCH).partition == [2, 2, 2]
    assert make_plan(cells, 3, MICRO_BATCH, cell_seconds=seconds).partition == [2, 1, 3]


def test_a_pipeline_measures_its_cells_if_asked_and_trains_as_one_cut_by_hand() -> None:
    measured, by_hand = (
        params.build(
            cells=deceptive_cells(),
            learner=make_learner(),
            devices=["/CPU:0", "/CPU:1", "/CPU:2"],
            micro_batch=MICRO_BATCH,
        )
        for params in (
            Pipeline.Params(num_stages=3, partition_costs=PartitionCosts.measured),
            Pipeline.Params(num_stages=3, partition=[2, 1, 3]),
        )
    )
    assert [len(stage.cells) for stage in measured.stages] == [2, 1, 3]
    assert measured.plan.seconds is not None
    for seed in range(3):
        batch = dense_batch(4, seed)
        assert measured.train_step(batch) == by_hand.train_step(batch)
    measured.close()
    by_hand.close()


def test_a_pipeline_takes_seconds_that_were_measured_before() -> None:
    cells = dense_cells(4)
    pipeline = Pipeline.Params(num_stages=2, partition_costs=PartitionCosts.measured).build(
        cells=cells,
        learner=make_learner(),
        devices=["/CPU:0", "/CPU:1"],
        micro_batch={},  # Nothing can be measured with that.
        cell_seconds=dict(zip(cells, (4.0, 1.0, 1.0, 1.0), strict=True)),
    )
    assert pipeline.plan.partition == [1, 3]
    pipeline.close()


def test_equal_cells_with_equal_inputs_are_measured_once() -> None:
    # Two measurements would differ in some digit.
    seconds = measure_cells(dense_cells(5), MICRO_BATCH, "/CPU:0")
    assert seconds["dense_0"] == seconds["dense_1"] == seconds["dense_2"]
    changed = {**dense_cells(5), "dense_1": Dense.Params(trainable=False)}
    seconds = measure_cells(changed, MICRO_BATCH, "/CPU:0")
    assert seconds["dense_0"] == seconds["dense_2"] != seconds["dense_1"]


def test_nothing_that_was_built_stays() -> None:
    def num_stages() -> int:
        gc.collect()
        return sum(isinstance(thing, Stage) for thing in gc.get_objects())

    before = num_stages()
    measure_cells(dense_cells(4), MICRO_BATCH, "/CPU:0")
    assert num_stages() == before


@pytest.mark.parametrize(
    ("dtype", "remat"),
    [(tf.bfloat16, Rematerialisation.layer), (tf.float32, Rematerialisation.stage)],
)
def test_a_transformer_is_measured_as_it_will_run(
    dtype: tf.DType, remat: Rematerialisation
) -> None:
    cells = transformer().cells()
    seconds = measure_cells(
        cells, TRANSLATION_MICRO_BATCH, "/CPU:0", compute_dtype=dtype, remat=remat
    )
    assert seconds.keys() == cells.keys()


def test_cells_are_measured_compiled_if_they_will_run_so() -> None:
    cells = {"source": Source.Params(), "bad": Failing.Params(), "loss": SquareLoss.Params()}
    # Its assertion would fail; XLA leaves it out.
    assert measure_cells(cells, MICRO_BATCH, "/CPU:0", jit_compile=True).keys() == cells.keys()


def test_an_entry_that_is_not_there_is_named_with_the_cell() -> None:
    words = r"Cell loss reads the batch entries y, whose specs are not in micro_batch \(x\)"
    with pytest.raises(BatchError, match=words):
        measure_cells(dense_cells(3), {"x": MICRO_BATCH["x"]}, "/CPU:0")


class Failing(Cell):
    """x -> x, once a condition that never holds has been met."""

    def __call__(self, inputs: tf.Tensor, context: Context) -> tf.Tensor:
        with tf.control_dependencies([tf.debugging.assert_greater(tf.reduce_sum(inputs), 1e9)]):
            return tf.identity(inputs)


def test_a_cell_that_fails_is_named() -> None:
    cells = {"source": Source.Params(), "bad": Failing.Params(), "loss": SquareLoss.Params()}
    words = (
        r"\(cell bad, device /CPU:0\) failed in the trial run that measures it, alone on a stage"
    )
    with pytest.raises(PipelineError, match=words):
        measure_cells(cells, MICRO_BATCH, "/CPU:0")


def test_a_cell_without_room_for_its_weights_is_named() -> None:
    cells = {**dense_cells(3), "dense_0": Dense.Params(dim=2**24)}
    with pytest.raises(DeviceMemoryError, match=r"\(cell dense_0\) does not fit /CPU:0"):
        measure_cells(cells, MICRO_BATCH, "/CPU:0")


def print_of(
    cells: Mapping[str, Layer.Params] | None = None,
    micro_batch: Mapping[str, Spec] = MICRO_BATCH,
    dtype: tf.DType = tf.float32,
    remat: Rematerialisation = Rematerialisation.none,
    jit_compile: bool = False,
) -> str:
    return fingerprint(
        cells or dense_cells(4),
        micro_batch,
        "/CPU:1",
        compute_dtype=dtype,
        remat=remat,
        jit_compile=jit_compile,
    )


def test_a_fingerprint_tells_all_apart_that_changes_seconds() -> None:
    others = [
        print_of(dense_cells(5)),
        print_of({**dense_cells(4), "dense_1": Dense.Params(trainable=False)}),
        print_of({**dense_cells(4), "dense_1": Scale.Params()}),
        print_of(micro_batch={**MICRO_BATCH, "x": Spec((3, 4))}),
        print_of(dtype=tf.bfloat16),
        print_of(remat=Rematerialisation.layer),
        print_of(jit_compile=True),
    ]
    assert len({print_of(), *others}) == 1 + len(others)
    assert print_of() == print_of({name: p.copy().freeze() for name, p in dense_cells(4).items()})


def test_a_device_is_told_by_its_hardware_not_its_number() -> None:
    assert device_in_words("/CPU:0") == device_in_words("/CPU:1")
    assert device_in_words("/CPU:0").endswith("cores")
