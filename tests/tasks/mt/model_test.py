"""The whole Transformer: against NumPy, in decoding, under paddings, and its knobs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.base.context import Context
from lingpipe.base.layer import Layer, Scope
from lingpipe.base.spec import Spec
from lingpipe.decode.beam_search import beam_search
from lingpipe.decode.greedy import greedy_search
from lingpipe.decode.step import tile_beams
from lingpipe.hyperparams import ParamsError
from lingpipe.layers.dropout import Dropout
from lingpipe.layers.softmax import LogitClipping
from lingpipe.layers.transformer import NormPosition
from tasks.mt.model import SharedTables, TransformerModel
from tests.tasks.mt.plain_transformer import PlainTransformer

SHARED = "token_embedding/table"
SOURCES = [[5, 7, 9, 3], [4, 3], [8, 6, 3]]
TARGETS = [[2, 5], [2, 7, 9, 6, 4], [2]]
PARAMS = TransformerModel.Params(
    vocabulary_size=13,
    model_dim=8,
    ffn_dim=16,
    num_heads=2,
    head_dim=3,
    num_encoder_layers=2,
    num_decoder_layers=2,
)


def padded(sentences: list[list[int]], extra: int = 0) -> tf.Tensor:
    """Ids [B, T], each sentence followed by zeros."""
    length = max(map(len, sentences)) + extra
    return tf.constant([ids + [0] * (length - len(ids)) for ids in sentences])


def build(params: TransformerModel.Params) -> tuple[TransformerModel, dict[str, np.ndarray]]:
    """A model with every weight moved from its start, and its weights by path."""
    scope = Scope(seed=1)
    model = params.build(scope)
    for key, (path, variable) in enumerate(scope.variables.items()):
        noise = tf.random.stateless_normal(variable.shape, [key, 3])
        variable.assign_add((0.05 if path.endswith("table") else 0.3) * noise)
    return model, {path: variable.numpy() for path, variable in scope.variables.items()}


@pytest.fixture(scope="module")
def model() -> TransformerModel:
    return build(PARAMS)[0]


@pytest.mark.parametrize(
    ("norm_position", "shared_tables", "tables"),
    [
        (NormPosition.pre, SharedTables.all, (SHARED, SHARED, SHARED)),
        (NormPosition.post, SharedTables.embeddings, (SHARED, SHARED, "softmax/softmax/table")),
        (
            NormPosition.pre,
            SharedTables.none,
            (
                "source_embedding/tokens/embedding/table",
                "target_embedding/tokens/embedding/table",
                "softmax/softmax/table",
            ),
        ),
    ],
)
def test_logits_equal_those_of_a_plain_transformer(
    norm_position: NormPosition, shared_tables: SharedTables, tables: tuple[str, str, str]
) -> None:
    params = PARAMS.copy(norm_position=norm_position, shared_tables=shared_tables)
    model, weights = build(params)
    plain = PlainTransformer(weights, 2, 2, norm_position is NormPosition.pre, tables)
    logits = model.logits(padded(SOURCES), padded(TARGETS)).numpy()
    for row, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        expected = plain.logits(source, target)
        np.testing.assert_allclose(logits[row, : len(target)], expected, atol=2e-5)


def decoded_logits(model: TransformerModel, source_ids: tf.Tensor, target_ids: tf.Tensor) -> Any:
    """Logits [B, T, V], position by position."""
    state = model.encode(source_ids)
    logits = []
    for time in range(target_ids.shape[1]):
        step_logits, state = model.step(target_ids[:, time], time, state)
        logits.append(step_logits)
    return tf.stack(logits, axis=1)


@pytest.mark.parametrize("norm_position", list(NormPosition))
def test_decoding_step_by_step_equals_the_whole(norm_position: NormPosition) -> None:
    model, _ = build(PARAMS.copy(norm_position=norm_position))
    source_ids, target_ids = padded(SOURCES), padded(TARGETS)
    whole = model.logits(source_ids, target_ids)
    np.testing.assert_allclose(decoded_logits(model, source_ids, target_ids), whole, atol=1e-5)


def test_the_state_grows_from_nothing_by_one_position_a_step(model: TransformerModel) -> None:
    state = model.encode(padded(SOURCES))
    assert set(state) == {"fixed", "cache"}
    for leaf in tf.nest.flatten(state["fixed"]):
        assert leaf.shape[0] == 3
    for leaf in tf.nest.flatten(state["cache"]):
        assert leaf.shape == [3, 2, 0, 3]
    _, after = model.step(tf.constant([2, 2, 2]), 0, state)
    tf.nest.assert_same_structure(state, after)
    for leaf in tf.nest.flatten(after["cache"]):
        assert leaf.shape == [3, 2, 1, 3]


def test_twenty_paddings_more_change_no_logit(model: TransformerModel) -> None:
    targets = padded(TARGETS)
    expected = model.logits(padded(SOURCES), targets)
    longer = padded(SOURCES, extra=20)
    np.testing.assert_allclose(model.logits(longer, targets), expected, atol=1e-5)
    np.testing.assert_allclose(decoded_logits(model, longer, targets), expected, atol=1e-5)


def test_sentences_do_not_depend_on_their_neighbours(model: TransformerModel) -> None:
    together = model.logits(padded(SOURCES), padded(TARGETS)).numpy()
    for row, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        alone = model.logits(padded([source]), padded([target])).numpy()
        np.testing.assert_allclose(alone[0], together[row, : len(target)], atol=1e-5)


def test_future_tokens_do_not_change_the_past(model: TransformerModel) -> None:
    source_ids = padded(SOURCES)
    before = model.logits(source_ids, tf.constant([[2, 4, 5, 6]] * 3))
    after = model.logits(source_ids, tf.constant([[2, 4, 9, 11]] * 3))
    np.testing.assert_allclose(after[:, :2], before[:, :2], atol=1e-6)
    assert np.abs(after[:, 2:] - before[:, 2:]).max() > 0.01


def test_a_source_of_paddings_alone_gives_no_nan(model: TransformerModel) -> None:
    batch = {
        "source_ids": tf.constant([[0, 0, 0], [4, 3, 0]]),
        "target_ids": tf.constant([[0, 0], [2, 5]]),
        "target_labels": tf.constant([[0, 0], [5, 3]]),
        "target_weights": tf.constant([[0.0, 0.0], [1.0, 1.0]]),
    }
    with tf.GradientTape() as tape:
        sums = model(None, Context(batch=batch))
    for value in [*sums.values(), *tape.gradient(sums["loss"], model.trainable_variables)]:
        assert np.all(np.isfinite(tf.convert_to_tensor(value)))


def teacher_forced(model: TransformerModel, source: list[int], ids: list[int]) -> float:
    """The log-probability of a hypothesis, by the whole forward pass."""
    logits = model.logits(padded([source]), padded([[2, *ids[:-1]]]))[0]
    return float(sum(tf.nn.log_softmax(logits).numpy()[range(len(ids)), ids]))


def test_searches_score_hypotheses_as_teacher_forcing_does(model: TransformerModel) -> None:
    options = {
        "batch_size": 3,
        "begin_id": 2,
        "end_id": 3,
        "max_lengths": tf.constant([5, 3, 4]),
        "length_penalty_alpha": 0.0,
    }
    state = model.encode(padded(SOURCES))
    greedy = greedy_search(model.step, state, **options)
    beams = beam_search(model.step, tile_beams(state, 3), beam_size=3, nbest=3, **options)
    for output in (greedy, beams):
        for row, source in enumerate(SOURCES):
            for ids, length, score in zip(
                output.ids[row], output.lengths[row], output.log_probabilities[row], strict=True
            ):
                hypothesis = ids.numpy()[: int(length)].tolist()
                expected = teacher_forced(model, source, hypothesis)
                assert float(score) == pytest.approx(expected, abs=1e-4)


def test_a_search_runs_in_a_function_of_open_shapes(model: TransformerModel) -> None:
    # AutoGraph has nothing to convert here, and looking for it takes six times as long as tracing.
    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)], autograph=False)
    def search(source_ids: tf.Tensor) -> tf.Tensor:
        count = tf.shape(source_ids)[0]
        return greedy_search(
            model.step,
            model.encode(source_ids),
            batch_size=count,
            begin_id=2,
            end_id=3,
            max_lengths=tf.fill([count], 4),
        ).ids

    together = search(padded(SOURCES)).numpy()
    for row, source in enumerate(SOURCES):
        np.testing.assert_array_equal(search(padded([source]))[0], together[row])


# -- Knobs -------------------------------------------------------------------------------------


def translation_model(num_layers: int, ffn_dim: int, num_heads: int) -> TransformerModel.Params:
    """T(L, H, A) of Huang et al. 2019: width 1024, 64 a head, 64k ids, two tables."""
    return TransformerModel.Params(
        vocabulary_size=64_000,
        model_dim=1024,
        ffn_dim=ffn_dim,
        num_heads=num_heads,
        head_dim=64,
        num_encoder_layers=num_layers,
        num_decoder_layers=num_layers,
        shared_tables=SharedTables.embeddings,
    )


@pytest.mark.parametrize(
    ("sizes", "weights"),
    [
        ((6, 8192, 16), 408e6),
        ((24, 8192, 16), 1.24e9),
        ((12, 16384, 32), 1.24e9),
        ((32, 16384, 32), 3.08e9),
        ((64, 16384, 32), 6.04e9),
    ],
)
def test_the_published_models_have_their_published_size(
    sizes: tuple[int, int, int], weights: float
) -> None:
    declared = translation_model(*sizes).all_weights()
    assert sum(weight.size for weight in declared.values()) == pytest.approx(weights, rel=0.01)


def test_the_cost_of_a_model_is_that_of_its_products() -> None:
    params = TransformerModel.Params(vocabulary_size=8000)
    batch = {"source_ids": Spec((4, 128), "int32"), "target_ids": Spec((4, 128), "int32")}
    tokens, dim, ffn = 4 * 128, 512, 2048
    attention = 2 * tokens * (4 * dim * dim + 2 * 128 * dim)
    layers = 6 * (3 * attention + 2 * 4 * tokens * dim * ffn)
    expected = layers + 2 * tokens * dim * 8000
    assert params.cost(None, batch).flops == pytest.approx(expected, rel=0.02)


def rates(params: Layer.Params, path: str = "") -> dict[str, float]:
    """Path of every dropout layer below -> its rate."""
    found = {path: params.rate} if isinstance(params, Dropout.Params) else {}
    for name, child in params.children().items():
        found.update(rates(child, f"{path}/{name}" if path else name))
    return found


def test_the_declared_dropout_is_the_dropout_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    params = PARAMS.copy(dropout=0.1, attention_dropout=0.2, feed_forward_dropout=0.4)
    declared = rates(params)
    knobs = {"sum_dropout": 0.1, "residual_dropout": 0.1, "probability_dropout": 0.2}
    for path, rate in declared.items():
        assert rate == {**knobs, "hidden_dropout": 0.4}[path.rpartition("/")[2]]
    dropped: dict[str, list[np.ndarray]] = {}
    apply = Dropout.__call__

    def count(layer: Dropout, inputs: tf.Tensor, context: Context) -> tf.Tensor:
        outputs = apply(layer, inputs, context)
        was_zero = inputs.numpy() == 0
        dropped.setdefault(layer.path, []).append(outputs.numpy()[~was_zero] == 0)
        return outputs

    monkeypatch.setattr(Dropout, "__call__", count)
    ids = tf.random.stateless_uniform([40, 12], [1, 2], 4, 13, tf.int32)
    batch = {"source_ids": ids, "target_ids": ids, "target_labels": ids}
    batch["target_weights"] = tf.ones([40, 12])
    params.build(Scope())(None, Context(training=True, step=1, batch=batch))
    assert set(dropped) == set(declared)
    for path, calls in dropped.items():
        share = np.mean(np.concatenate(calls))
        rate, size = declared[path], sum(call.size for call in calls)
        assert abs(share - rate) < 5 * math.sqrt(rate * (1 - rate) / size), path
        expected_calls = {"encoder": 2, "decoder": 3}.get(path[:7], 1)
        assert len(calls) == (expected_calls if path.endswith("residual_dropout") else 1)


def test_without_declared_dropout_training_equals_evaluation(model: TransformerModel) -> None:
    batch = {
        "source_ids": padded(SOURCES),
        "target_ids": padded(TARGETS),
        "target_labels": padded(TARGETS),
        "target_weights": tf.ones([3, 5]),
    }
    train = model(None, Context(training=True, batch=batch))
    test = model(None, Context(training=False, batch=batch))
    assert {key: float(value) for key, value in train.items()} == {
        key: float(value) for key, value in test.items()
    }


def test_the_gradient_of_a_shared_table_is_the_sum_of_its_uses() -> None:
    batch = {
        "source_ids": padded(SOURCES),
        "target_ids": padded(TARGETS),
        "target_labels": padded(TARGETS),
        "target_weights": tf.ones([3, 5]),
    }
    gradients = {}
    for tables in SharedTables:
        scope = Scope(seed=1)
        model = PARAMS.copy(shared_tables=tables).build(scope)
        found = {p: v for p, v in scope.variables.items() if p.endswith("table")}
        for variable in found.values():
            variable.assign(tf.random.stateless_normal(variable.shape, [1, 2]))
        with tf.GradientTape() as tape:
            loss = model(None, Context(batch=batch))["loss"]
        sources = list(found.values())
        gradients[tables] = [tf.convert_to_tensor(g) for g in tape.gradient(loss, sources)]
    assert [len(gradients[tables]) for tables in SharedTables] == [3, 2, 1]
    (total,) = gradients[SharedTables.all]
    np.testing.assert_allclose(tf.add_n(gradients[SharedTables.none]), total, atol=1e-4)
    np.testing.assert_allclose(tf.add_n(gradients[SharedTables.embeddings]), total, atol=1e-4)


def test_depth_scaled_init_makes_feed_forward_kernels_smaller_and_no_others() -> None:
    plain, deep = Scope(seed=1), Scope(seed=1)
    PARAMS.copy(num_encoder_layers=4).build(plain)
    PARAMS.copy(num_encoder_layers=4, depth_scaled_init=True).build(deep)
    for path, variable in plain.variables.items():
        scale = 1.0
        if "/feed_forward/" in path:
            scale = 1 / 4 if path.startswith("encoder") else 1 / 2
        np.testing.assert_allclose(deep.variables[path], scale * variable, rtol=1e-6)


def test_logits_are_clipped_as_declared() -> None:
    params = PARAMS.copy(logit_clipping=LogitClipping.hard, logit_limit=0.25)
    model, _ = build(params)
    logits = model.logits(padded(SOURCES), padded(TARGETS)).numpy()
    assert np.abs(logits).max() == 0.25
    steps = decoded_logits(model, padded(SOURCES), padded(TARGETS)).numpy()
    np.testing.assert_allclose(steps, logits, atol=1e-5)


def test_all_that_is_wrong_is_listed_at_once() -> None:
    params = PARAMS.copy(model_dim=10, head_dim=None, num_heads=4, dropout=1.5)
    params.num_decoder_layers = 0
    with pytest.raises(ParamsError) as caught:
        params.validate()
    for words in (
        "model_dim (10) must be a multiple of num_heads (4)",
        "dropout (1.5) must be at least 0 and less than 1",
        "num_decoder_layers (0) must be greater than 0",
    ):
        assert words in str(caught.value)


def test_a_model_computes_and_decodes_in_bfloat16(model: TransformerModel) -> None:
    context = Context(compute_dtype=tf.bfloat16)
    source_ids, target_ids = padded(SOURCES), padded(TARGETS)
    wide = model.logits(source_ids, target_ids)
    short = model.logits(source_ids, target_ids, context=context)
    assert short.dtype == tf.float32
    np.testing.assert_allclose(short, wide, atol=0.1 * np.abs(wide).max())
    state = model.encode(source_ids, context=context)
    logits, state = model.step(target_ids[:, 0], 0, state, context=context)
    np.testing.assert_allclose(logits, short[:, 0], atol=0.1 * np.abs(wide).max())
    assert {leaf.dtype for leaf in tf.nest.flatten(state["cache"])} == {tf.bfloat16}
