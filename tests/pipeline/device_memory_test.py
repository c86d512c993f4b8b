"""A pipeline told what its devices hold keeps less, computes more again, and trains the same."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from lingpipe.base.cost import Cost
from lingpipe.base.spec import Spec, Specs
from lingpipe.hyperparams import ParamsError
from lingpipe.pipeline.builder import Pipeline
from lingpipe.pipeline.keeping import Rematerialisation
from lingpipe.pipeline.partitioner import PartitionError
from lingpipe.pipeline.schedules import ScheduleKind
from tests.pipeline.small_models import (
    SEED,
    TRANSLATION_MICRO_BATCH,
    Dense,
    Recorder,
    Scale,
    Source,
    SquareLoss,
    assert_equal_arrays,
    dense_batch,
    dense_cells,
    gradients_of,
    make_learner,
    make_recorder,
    reference_step,
    transformer,
    translation_batch,
    translation_signature,
)

CELLS = transformer(num_encoder_layers=4, num_decoder_layers=2).cells()


def make(schedule: str, remat: str, device_memory: int | None = None) -> Pipeline:
    params = Pipeline.Params(
        num_stages=2,
        num_micro_batches=4,
        device_memory=None if device_memory is None else str(device_memory),
    )
    params.override("schedule", schedule, text=True)
    params.override("remat", remat, text=True)
    return params.build(
        cells=CELLS,
        learner=make_learner(Recorder.Params()),
        devices=["/CPU:0", "/CPU:1"],
        micro_batch=TRANSLATION_MICRO_BATCH,
        signature=translation_signature(),
        seed=SEED,
    )


@pytest.mark.parametrize(("schedule", "share"), [("gpipe", 0.6), ("1f1b", 0.7), ("zb_h1", 0.8)])
def test_auto_fits_the_device_and_gives_the_gradients_of_one_device(
    schedule: str, share: float
) -> None:
    unlimited = make(schedule, "none")
    limit = int(max(unlimited.plan.device_bytes) * share)
    pipeline = make(schedule, "auto", limit)
    batch = translation_batch(16)
    pipeline.train_step(batch)
    assert max(pipeline.plan.device_bytes) <= limit
    chosen = pipeline.stages[0].residuals
    plan = pipeline.plan.stages[0]
    assert chosen
    assert plan.memory
    assert chosen.kept_bytes <= chosen.limit == plan.memory.kept_limit(limit)
    assert 0 < chosen.share_again < 1
    assert_equal_arrays(
        gradients_of(pipeline), reference_step(CELLS, batch).gradients, rtol=1e-4, atol=1e-6
    )
    pipeline.close()


def test_with_room_enough_auto_computes_nothing_again() -> None:
    pipeline = make("1f1b", "auto", 2**30)
    pipeline.train_step(translation_batch(4))
    assert pipeline.stages[0].residuals
    assert pipeline.stages[0].residuals.share_again == 0.0
    pipeline.close()


def test_what_fits_no_device_is_refused_before_anything_is_built() -> None:
    with pytest.raises(PartitionError, match=r"device_memory is 97\.7 KiB, and no cut into 2"):
        make("gpipe", "auto", 100_000)


@pytest.mark.parametrize("device_memory", [700, 1000])
def test_stages_that_share_a_device_share_its_room_by_need(device_memory: int) -> None:
    """Two stages a device, one of which keeps much more than the other."""

    class Keeping(Dense):
        class Params(Dense.Params):
            def cost(self, inputs: Specs, batch: Mapping[str, Spec] | None = None) -> Cost:
                return Cost(1, inputs, 32)

    cells = {
        "source": Source.Params(),
        "dense_0": Keeping.Params(),
        "dense_1": Keeping.Params(),
        "scale": Scale.Params(),
        "loss": SquareLoss.Params(),
    }
    params = Pipeline.Params(
        num_stages=4,
        stages_per_device=2,
        num_micro_batches=2,
        partition=[1, 2, 1, 1],
        device_memory=str(device_memory),
        schedule=ScheduleKind.interleaved,
        remat=Rematerialisation.auto,
    )
    pipeline = params.build(
        cells=cells,
        learner=make_learner(Recorder.Params()),
        devices=["/CPU:0", "/CPU:1"],
        micro_batch={"x": Spec((2, 4)), "y": Spec((2, 4))},
        seed=SEED,
    )
    batch = dense_batch(4)
    pipeline.train_step(batch)
    assert max(pipeline.plan.device_bytes) <= device_memory
    assert_equal_arrays(gradients_of(pipeline), reference_step(cells, batch).gradients)
    pipeline.close()


@pytest.mark.parametrize(
    "typical",
    [Spec((2, 5, 4)), Spec((2, 4)), Spec((2, 3, 4), "int32")],
    ids=["another length", "fewer dimensions", "another dtype"],
)
def test_a_typical_micro_batch_unlike_the_first_does_no_harm(typical: Spec) -> None:
    numbers = np.random.default_rng(0)
    batch = {name: numbers.normal(size=(6, 3, 4)).astype(np.float32) for name in ("x", "y")}
    micro_batch = {"x": typical, "y": Spec((2, 3, 4))}
    pipeline = make_recorder(dense_cells(5), 2, 3, "gpipe", "auto", micro_batch=micro_batch)
    pipeline.train_step(batch)
    assert_equal_arrays(gradients_of(pipeline), reference_step(dense_cells(5), batch).gradients)
    pipeline.close()


def test_auto_without_a_limit_is_refused() -> None:
    with pytest.raises(ParamsError, match=r"remat \(auto\) keeps what fits device_memory"):
        make("gpipe", "auto")
