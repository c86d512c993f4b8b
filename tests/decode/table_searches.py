"""What the tests of beam search share: searches of random models, and checks of what they find.

Each row of a batch is another random model, so that one call tries dozens of them.
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from lingpipe.decode.beam_search import beam_search
from lingpipe.decode.output import BeamOutput
from lingpipe.decode.step import tile_beams
from tests.decode.tiny_models import BEGIN, END, Hypothesis, table_state, table_step

ALPHAS = [-1.0, 0.0, 0.6, 1.0, 2.0]
VOCABULARY = 5
ALLOWED = [1, 2, 3, 4]  # 0 is padding.
MODELS = 24
LENGTH = 5
# Ragged on purpose, the longest not first.
LENGTHS = [1 + (3 * row + 2) % LENGTH for row in range(MODELS)]
# Places for every sentence of up to 5 tokens, 3 of them free to go on: 1 + 3 + ... + 81 + 243.
WIDE = 364


def search(
    beam_size: int,
    alpha: float,
    nbest: int,
    *,
    tables: np.ndarray,
    lengths: Sequence[int] = LENGTHS,
    forbidden_ids: Sequence[int] = (0,),
    prefix_ids: tf.Tensor | None = None,
) -> BeamOutput:
    """Searches with one table model a sentence."""
    return beam_search(
        table_step,
        tile_beams(table_state(tables), beam_size),
        batch_size=len(tables),
        begin_id=BEGIN,
        end_id=END,
        max_lengths=tf.constant(lengths),
        beam_size=beam_size,
        length_penalty_alpha=alpha,
        nbest=nbest,
        forbidden_ids=forbidden_ids,
        prefix_ids=prefix_ids,
    )


def hypotheses(output: BeamOutput, row: int) -> list[Hypothesis]:
    """Returns the hypotheses of a sentence, having checked what holds for all."""
    found = []
    for ids, length, log_probability, score in zip(
        output.ids.numpy()[row],
        output.lengths.numpy()[row],
        output.log_probabilities.numpy()[row],
        output.scores.numpy()[row],
        strict=True,
    ):
        assert not ids[length:].any()
        assert END not in ids[: length - 1]
        if np.isneginf(score):
            assert length == 0
            assert np.isneginf(log_probability)
        else:
            found.append(Hypothesis(tuple(ids[:length].tolist()), log_probability, score))
    assert len({hypothesis.ids for hypothesis in found}) == len(found), "twice the same"
    scores = [hypothesis.score for hypothesis in found]
    assert scores == sorted(scores, reverse=True)
    return found


def assert_same(found: list[Hypothesis], expected: list[Hypothesis]) -> None:
    """Checks ids, log-probabilities and scores of one sentence's hypotheses."""
    assert [hypothesis.ids for hypothesis in found] == [hypothesis.ids for hypothesis in expected]
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours[1:], theirs[1:], rtol=2e-5, atol=2e-6)
