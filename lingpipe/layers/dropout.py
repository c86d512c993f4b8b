"""Dropout whose mask belongs to the example, not to the moment in which it is drawn.

Philox, a counter-based generator, gives any part of its stream without drawing what lies before.
Its key is (seed, layer path, size of an example) and its counter (position in the stream, step):

    step 1:  | example 0 | example 1 | example 2 | ...      one example takes a whole number of
    step 2:  | example 0 | example 1 | example 2 | ...      blocks of four 32-bit words

A micro-batch that starts at example 17 starts reading at example 17's blocks. So the mask is the
same for every number of stages, micro-batches and replicas, and when a forward pass is computed
again. All arithmetic is in 64 bits: a run may go on beyond step 2^31.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import tensorflow as tf

from lingpipe.base.context import Context
from lingpipe.base.cost import Cost
from lingpipe.base.layer import Layer
from lingpipe.base.spec import Spec
from lingpipe.layers.checks import check_rate

# Each element is kept or dropped by 16 bits, so that a rate is exact to 1/131,072. Eight bits would
# be a third faster, but would drop 10.2 % for a rate of 10 % and nothing at all for 0.1 %.
_LEVELS = 65_536
_ELEMENTS_PER_BLOCK = 8


class Dropout(Layer):
    """Sets a share of all elements to 0 in training and scales up the others to keep the mean."""

    class Params(Layer.Params):
        """How much to drop."""

        rate: float = 0.0  # Share of elements dropped in training; at least 0, less than 1.

        def inconsistencies(self) -> Iterable[tuple[str, str]]:
            yield from super().inconsistencies()
            yield from check_rate(self, "rate")

        def cost(self, inputs: Spec, batch: Mapping[str, Spec] | None = None) -> Cost:
            if not self.rate:
                return Cost(0, inputs, 0, working_bytes=0, waiting_bytes=0)
            mask_bytes = inputs.elements
            # At work: both gradients, and the factors made of the mask.
            kept, working = mask_bytes + inputs.bytes, 3 * inputs.bytes
            return Cost(4 * inputs.elements, inputs, kept, working, waiting_bytes=0)

    params: Params

    def __call__(self, inputs: tf.Tensor, context: Context) -> tf.Tensor:
        """Floats whose dimension 0 counts examples -> the same shape and dtype.

        Outside training, or at rate 0, returns `inputs` itself.
        """
        if not context.training or not self.params.rate:
            return inputs
        num_dropped = _dropped_levels(self.params.rate)
        bits = random_bits(inputs, context, self.path)
        keep = bits >= tf.constant(num_dropped, tf.uint16)
        return _keep(inputs, keep, _LEVELS / (_LEVELS - num_dropped))


def random_bits(like: tf.Tensor, context: Context, path: str) -> tf.Tensor:
    """Draws uniform uint16 in the shape of `like` [B, ...], for the layer at `path`.

    Example i of `like` gets the bits of example `context.first_example + i`, whatever B is. They
    change with `context.step`, and with each draw that `path` makes in one call.
    """
    shape = tf.shape(like, out_type=tf.int64)
    num_examples, size = shape[0], _example_size(like, shape)
    blocks = (size + _ELEMENTS_PER_BLOCK - 1) // _ELEMENTS_PER_BLOCK
    # Examples of another size lie elsewhere in the stream; another key keeps them from meeting.
    key = _int64(_signed(context.random_key(path))) + blocks
    counter = tf.stack([_int64(context.first_example) * blocks, _int64(context.step)])
    words = tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=tf.stack([num_examples * blocks, 4]),
        key=tf.bitcast(key[None], tf.uint64),
        counter=tf.bitcast(counter, tf.uint64),
        alg=1,  # Philox.
        dtype=tf.uint32,
    )
    bits = tf.bitcast(words, tf.uint16)  # [B * blocks, 4, 2]
    bits = tf.reshape(bits, tf.stack([num_examples, blocks * _ELEMENTS_PER_BLOCK]))
    return tf.reshape(bits[:, :size], shape)


def _example_size(like: tf.Tensor, shape: tf.Tensor) -> tf.Tensor:
    """Number of elements of one example, int64."""
    known = like.shape[1:].num_elements()
    return tf.reduce_prod(shape[1:]) if known is None else _int64(known)


def _dropped_levels(rate: float) -> int:
    """How many of the 65,536 levels mean "dropped": never none for a rate above 0, never all."""
    return min(max(round(rate * _LEVELS), 1), _LEVELS - 1)


def _keep(inputs: tf.Tensor, keep: tf.Tensor, scale: float) -> tf.Tensor:
    """`inputs * scale` where `keep`, else 0; only `keep`, a byte each, stays until the backward."""

    def masked(values: tf.Tensor) -> tf.Tensor:
        factors = tf.cast(keep, values.dtype) * tf.cast(scale, values.dtype)
        return values * factors

    @tf.custom_gradient
    def function(values: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        return masked(values), masked

    return function(inputs)


def _signed(key: int) -> int:
    """The int64 with the bits of an unsigned 64-bit key."""
    return key - (1 << 64) if key >> 63 else key


def _int64(value: tf.Tensor | int) -> tf.Tensor:
    return tf.constant(value, tf.int64) if isinstance(value, int) else tf.cast(value, tf.int64)
