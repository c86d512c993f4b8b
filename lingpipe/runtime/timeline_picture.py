"""A recorded step as a picture: one row a device, one box an action, coloured by what it computes.

The number in a box is that of its micro-batch. Where a device runs several stages, those of later
stages are lighter. Matplotlib draws into memory: no window and no state outside of the figure.
"""

from __future__ import annotations

import io
from collections.abc import Iterator

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from lingpipe.pipeline.schedule import Phase
from lingpipe.pipeline.timeline import CASTS, RecordedSpan, RecordedStep, Split

# Phase -> its name in the legend and its colour; all phases that are not here end a step.
_PASSES = {
    Phase.forward.name: ("forward", "#4c8bc9"),
    Phase.backward.name: ("backward", "#5fa55a"),
    Phase.backward_input.name: ("backward: input", "#3f9f93"),
    Phase.backward_weight.name: ("backward: weight", "#a3bf58"),
    CASTS: ("casts of weights", "#8e78b5"),
}
_TRANSFER = ("transfer", "#e08a3c")
_UPDATE = ("norm, update, copies", "#9a9a9a")

_WIDTH_INCHES, _ROW_INCHES, _FRAME_INCHES = 11.0, 0.55, 1.75
_DOTS_PER_INCH = 100
_ROW_HEIGHT = 0.8
_LETTER_INCHES = 0.085  # Width of a digit of a number in a box.


def draw_timeline(step: RecordedStep, split: Split, title: str) -> bytes:
    """The picture as the bytes of a PNG file.

    Args:
      step: what to draw.
      split: where its time went; stands under the title.
      title: a line of text.
    """
    rows = len(step.devices)
    height = _FRAME_INCHES + _ROW_INCHES * rows
    figure = Figure(figsize=(_WIDTH_INCHES, height), dpi=_DOTS_PER_INCH, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    shades = _shades(step)
    for span in step.spans:
        _draw_span(axes, span, shades[span.stage], step.seconds)
    axes.axvline(step.passes_seconds * 1e3, color="#444444", linewidth=0.8, linestyle=(0, (4, 3)))
    _draw_frame(axes, step)
    shares = "   ".join(f"{name} {share:.1%}" for name, share in split.shares().items())
    figure.suptitle(f"{title}\n{shares}", fontsize=9, linespacing=1.6)
    legend = [Patch(color=colour, label=label) for label, colour in _legend(step)]
    figure.legend(
        handles=legend,
        loc="outside lower center",
        ncols=len(legend),
        frameon=False,
        fontsize=9,
        handlelength=1.2,
        columnspacing=1.6,
    )
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()


def _draw_span(axes: Axes, span: RecordedSpan, shade: float, step_seconds: float) -> None:
    """A box, with a stripe at its start for bringing inputs, and a number if there is room."""
    _, colour = _PASSES.get(span.phase, _UPDATE)
    bottom = span.device - _ROW_HEIGHT / 2
    start, seconds = span.start * 1e3, span.seconds * 1e3
    axes.broken_barh(
        [(start, seconds)],
        (bottom, _ROW_HEIGHT),
        facecolors=_lighter(colour, shade),
        edgecolors="white",
        linewidth=0.5,
    )
    transfer = span.transfer_seconds * 1e3
    if transfer:
        box = (bottom, _ROW_HEIGHT)
        axes.broken_barh([(start, transfer)], box, facecolors=_TRANSFER[1], linewidth=0)
    room = span.seconds / step_seconds * _WIDTH_INCHES * 0.85
    text = "" if span.micro_batch is None else str(span.micro_batch)
    if text and room > _LETTER_INCHES * (len(text) + 1):
        middle = start + transfer + (seconds - transfer) / 2
        axes.text(middle, span.device, text, ha="center", va="center", fontsize=8, color="white")


def _draw_frame(axes: Axes, step: RecordedStep) -> None:
    """Axes: milliseconds to the right, devices downwards."""
    axes.set_xlim(0, step.seconds * 1e3)
    axes.set_ylim(len(step.devices) - 0.5, -0.5)
    axes.set_yticks(range(len(step.devices)), step.devices)
    axes.set_xlabel("milliseconds")
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.set_facecolor("#f3f3f3")


def _legend(step: RecordedStep) -> Iterator[tuple[str, str]]:
    """Label and colour of all that is to be seen."""
    phases = {span.phase for span in step.spans}
    for phase, entry in _PASSES.items():
        if phase in phases:
            yield entry
    if any(span.transfer_seconds for span in step.spans):
        yield _TRANSFER
    if phases - _PASSES.keys():
        yield _UPDATE


def _shades(step: RecordedStep) -> dict[int, float]:
    """For each stage how much lighter it is drawn, from 0 on: by its place on its device."""
    stages = sorted({(span.device, span.stage) for span in step.spans})
    shades: dict[int, float] = {}
    for device in range(len(step.devices)):
        own = [stage for on, stage in stages if on == device]
        shades |= {stage: 0.45 * place / len(own) for place, stage in enumerate(own)}
    return shades


def _lighter(colour: str, shade: float) -> tuple[float, ...]:
    """A colour mixed with white; 0 leaves it as it is."""
    return tuple(part + (1 - part) * shade for part in to_rgb(colour))
