"""What every task's input offers to the trainer and the evaluator."""

from collections.abc import Iterator
from pathlib import Path

from lingpipe.hyperparams import Parameterized
from lingpipe.input.batch import Batch, Cursor


class Input(Parameterized):
    """Base of all inputs: an endless training stream, and evaluation splits read in order.

    Built by `params.build(vocab_dir=..., seed=...)`.
    """

    class Params(Parameterized.Params):
        """Declares where examples come from and how they are put into batches."""

        def has_few_shapes(self) -> bool:
            """Whether batches come in few enough shapes to compile a model for each of them.

            So it is taken to be; an input whose batches may have any shape overrides this.
            """
            return True

    def __init__(self, params: Params, *, vocab_dir: Path, seed: int) -> None:
        """Keeps params.

        Args:
            params: frozen params.
            vocab_dir: folder of the run directory that keeps what decoding needs of the input.
            seed: selects the order of the training examples.
        """
        self.params = params
        self.vocab_dir = vocab_dir
        self.seed = seed

    @classmethod
    def is_prepared(cls, vocab_dir: Path) -> bool:
        """Whether `vocab_dir` holds all that an input keeps there; true if it keeps nothing."""
        return True

    def train_batches(self, cursor: Cursor) -> Iterator[Batch]:
        """The endless training batches from `cursor` on: a function of (seed, cursor) alone."""
        raise TypeError(f"{type(self).__qualname__} defines no train_batches(cursor).")

    def evaluation_batches(self, split: str) -> Iterator[Batch]:
        """All examples of a split (train, dev, test), each once, in a fixed order."""
        raise TypeError(f"{type(self).__qualname__} defines no evaluation_batches(split).")

    def describe(self, steps: int) -> str:
        """A table for people: what there is, and how often `steps` steps see it."""
        raise TypeError(f"{type(self).__qualname__} defines no describe(steps).")

    def name_example(self, position: int) -> str:
        """The training example at a position of `Batch.positions`, in words for a message."""
        return f"example {position}"
