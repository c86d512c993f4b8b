"""A pipeline told what its devices hold keeps less, computes more again, and trains the same."""

from __future__ import annotations

import pytest

from lingpipe.pipeline.builder import Pipeline
from lingpipe.pipeline.partitioner import PartitionError
from tests.pipeline.small_models import (
    SEED,
    TRANSLATION_MICRO_BATCH,
    Recorder,
    assert_equal_arrays,
    gradients_of,
    make_learner,
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
