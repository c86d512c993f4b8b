"""What goes wrong in a pipeline, and where: errors that name stage, cells, device and phase.

TensorFlow reports a failing operation; which part of the model that was, and which part of the
batch, only the pipeline knows. `naming` adds it to whatever is raised inside.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import tensorflow as tf

from lingpipe.errors import UserError
from lingpipe.pipeline.plan import StagePlan, first_and_last

if TYPE_CHECKING:
    from lingpipe.pipeline.residuals import Residuals
    from lingpipe.pipeline.stage import Stage


class PipelineError(RuntimeError):
    """A step that failed: no update was applied, and the next step may run.

    The message names stage, cells, device, micro-batch and phase; the cause is chained. Only a
    failure of the update itself, after both passes, leaves some stages updated; it says so.
    """


class CellError(UserError, TypeError):
    """A list of cells that makes no pipeline, such as one whose last cell returns no loss."""


class CompilationError(UserError, TypeError):
    """A stage that XLA cannot compile, as `pipeline.jit_compile` asks."""


class DeviceMemoryError(UserError, MemoryError):
    """A stage whose weights, or the least that it must keep, find no room on its device."""


# What a message of TensorFlow's holds if XLA could not compile a function.
_XLA_WORDS = ("tf2xla", "_XlaMustCompile", "XLA/TF boundary")


@contextlib.contextmanager
def refusing_lack_of_memory(index: int, plan: StagePlan, device: str) -> Iterator[None]:
    """Turns TensorFlow's failure to find room for a stage's variables into advice.

    Raises:
      DeviceMemoryError: with the stage, its weights and the bytes they take.
    """
    try:
        yield
    except tf.errors.ResourceExhaustedError as error:
        held = plan.weights + plan.mirrored_weights
        noun = "cell" if len(plan.cells) == 1 else "cells"
        raise DeviceMemoryError(
            f"Stage {index} ({noun} {first_and_last(plan.cells)}) does not fit {device}: its "
            f"{held:,} weights and as many gradients take {8 * held / 2**30:,.1f} GiB, the "
            "optimiser's slots not counted. Use more stages or a smaller model; `lingpipe plan` "
            "shows sizes without building them."
        ) from error


def refuse_lack_of_room(stage: Stage, residuals: Residuals) -> None:
    """Refuses a limit within which not even the least can be kept.

    Raises:
      DeviceMemoryError: with the arithmetic.
    """
    if residuals.kept_bytes > residuals.limit:
        raise DeviceMemoryError(
            f"{stage_in_words(stage)} must keep {residuals.least_bytes:,} bytes of a micro-batch "
            f"between its passes, whatever is computed again; pipeline.device_memory leaves "
            f"{max(0, int(residuals.limit)):,}. Use more or smaller micro-batches, more stages, "
            "or schedule 1f1b, which holds fewer micro-batches."
        )


@contextlib.contextmanager
def naming(stage: Stage, doing: str, cells: Sequence[str] | None = None) -> Iterator[None]:
    """Turns an exception inside into a `PipelineError` that says where.

    A `UserError` says all there is to say and passes, and so does what ends the process, such as
    `KeyboardInterrupt`.

    Args:
      stage: where it happens.
      doing: what is being done, after "failed in the": "forward pass of micro-batch 3".
      cells: names of the cells at work; None for all of the stage.
    """
    try:
        yield
    except (PipelineError, UserError):
        raise
    except Exception as error:
        if stage.jit_compile and any(word in str(error) for word in _XLA_WORDS):
            raise _compilation_error(stage, doing, error) from error
        raise PipelineError(
            f"{stage_in_words(stage, cells)} failed in the {doing}: {_in_one_line(error)}"
        ) from error


def stage_in_words(stage: Stage, cells: Sequence[str] | None = None) -> str:
    """Such as "Stage 2 (cells decoder_0 .. decoder_3, device /CPU:2)"."""
    names = list(stage.cells) if cells is None else list(cells)
    noun = "cell" if len(names) == 1 else "cells"
    replica = f" of replica {stage.replica}" if stage.replica else ""
    return f"Stage {stage.index}{replica} ({noun} {first_and_last(names)}, device {stage.device})"


def _compilation_error(stage: Stage, doing: str, error: Exception) -> CompilationError:
    """Says which operation of which cell XLA cannot compile, as far as TensorFlow tells."""
    nodes = re.findall(r"\{\{node (?:gradient_tape/)?(.*?)\}\}", str(error))
    cells = [name for name in stage.cells if any(node.startswith(f"{name}/") for node in nodes)]
    reason = re.sub(r" graph \S+?\[.*?\]", "", _in_one_line(error))
    return CompilationError(
        f"{stage_in_words(stage, cells or None)} cannot be compiled by XLA, in the {doing}: "
        f"{reason} Set pipeline.jit_compile=false, or write the cell without that operation."
    )


def _in_one_line(error: Exception) -> str:
    """Kind and first line of an error, without the names of TensorFlow's own functions."""
    text = re.sub(r"\{\{function_node .*?\}\}\s*", "", str(error)).strip()
    return f"{type(error).__name__}: {text.splitlines()[0]}" if text else type(error).__name__
