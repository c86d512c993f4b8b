"""A Transformer in NumPy, one sentence and one head at a time, to compare the real one with.

It reads weights by their paths and knows no batch, padding, cache or pipeline: a sentence is its
ids without paddings.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping

import numpy as np

Array = np.ndarray


@dataclasses.dataclass(frozen=True)
class PlainTransformer:
    """The model of tasks/mt/model.py, in float64.

    Attributes:
      weights: path -> value.
      num_layers: number of encoder layers and of decoder layers.
      num_heads: number of heads.
      is_pre_norm: whether norms stand before the branches.
      tables: paths of the source, the target and the softmax table.
    """

    weights: Mapping[str, Array]
    num_layers: int
    num_heads: int
    is_pre_norm: bool
    tables: tuple[str, str, str]

    def logits(self, source: list[int], target: list[int]) -> Array:
        """Logits [T, V] of one sentence."""
        x = self.embed(self.tables[0], source)
        for i in range(self.num_layers):
            path = f"encoder_{i}/layer"
            x = self.branch(x, path, "attention", lambda y, p=path: self.attend_self(p, y, False))
            x = self.branch(x, path, "feed_forward", lambda y, p=path: self.feed_forward(p, y))
        source_end = self.norm(x, "target_embedding/source_norm") if self.is_pre_norm else x
        x = self.embed(self.tables[1], target)
        for i in range(self.num_layers):
            path = f"decoder_{i}/layer"
            x = self.branch(x, path, "attention", lambda y, p=path: self.attend_self(p, y, True))
            x = self.branch(
                x, path, "cross_attention", lambda y, p=path: self.attend_source(p, y, source_end)
            )
            x = self.branch(x, path, "feed_forward", lambda y, p=path: self.feed_forward(p, y))
        x = self.norm(x, "softmax/norm") if self.is_pre_norm else x
        return x @ self.weights[self.tables[2]].T

    def embed(self, table: str, ids: list[int]) -> Array:
        """Scaled rows of the table plus sinusoids: [T, D]."""
        rows = self.weights[table][ids].astype(np.float64)
        dim = rows.shape[1]
        rows *= math.sqrt(dim)
        for position in range(len(ids)):
            for i in range(0, dim, 2):
                angle = position / 10_000 ** (i / dim)
                rows[position, i] += math.sin(angle)
                rows[position, i + 1] += math.cos(angle)
        return rows

    def branch(self, x: Array, path: str, name: str, function: Callable[[Array], Array]) -> Array:
        """A residual branch with its norm before it or after the sum."""
        norm = f"{path}/{name}_norm"
        if self.is_pre_norm:
            return x + function(self.norm(x, norm))
        return self.norm(x + function(x), norm)

    def norm(self, x: Array, path: str) -> Array:
        """Layer normalisation of each row."""
        centred = x - x.mean(axis=1, keepdims=True)
        normalised = centred / np.sqrt(np.mean(centred**2, axis=1, keepdims=True) + 1e-6)
        return normalised * self.weights[f"{path}/scale"] + self.weights[f"{path}/bias"]

    def linear(self, x: Array, path: str) -> Array:
        """A product and a bias."""
        return x @ self.weights[f"{path}/kernel"] + self.weights[f"{path}/bias"]

    def feed_forward(self, path: str, x: Array) -> Array:
        """Two products with relu in between."""
        hidden = np.maximum(self.linear(x, f"{path}/feed_forward/hidden"), 0)
        return self.linear(hidden, f"{path}/feed_forward/output")

    def attend_self(self, path: str, x: Array, is_causal: bool) -> Array:
        """Self-attention."""
        parts = np.split(self.linear(x, f"{path}/attention/query_key_value"), 3, axis=1)
        return self.attend(*parts, is_causal, f"{path}/attention/output")

    def attend_source(self, path: str, x: Array, source: Array) -> Array:
        """Cross-attention."""
        query = self.linear(x, f"{path}/cross_attention/query")
        key, value = np.split(self.linear(source, f"{path}/cross_attention/key_value"), 2, axis=1)
        return self.attend(query, key, value, False, f"{path}/cross_attention/output")

    def attend(self, query: Array, key: Array, value: Array, is_causal: bool, output: str) -> Array:
        """Attention of [T, N*H] to [S, N*H], head by head."""
        gathered = []
        by_head = [np.split(x, self.num_heads, axis=1) for x in (query, key, value)]
        for q, k, v in zip(*by_head, strict=True):
            scores = q @ k.T / math.sqrt(q.shape[1])
            chances = np.exp(scores) * (np.tri(*scores.shape) if is_causal else 1.0)
            gathered.append(chances / chances.sum(axis=1, keepdims=True) @ v)
        return self.linear(np.concatenate(gathered, axis=1), output)
