"""The picture of a step: a PNG with a row a device, whatever the step holds."""

import struct

import numpy as np
import pytest
from matplotlib.image import imread  # What was drawn is read back.

from lingpipe.pipeline.timeline import RecordedSpan, RecordedStep, split_step
from lingpipe.runtime.timeline_picture import draw_timeline


def step_of(*spans: RecordedSpan, devices: int = 1) -> RecordedStep:
    return RecordedStep(tuple(f"/GPU:{device}" for device in range(devices)), spans, 0.1)


def drawn(step: RecordedStep) -> bytes:
    return draw_timeline(step, split_step(step), "mine: two stages")


def size(png: bytes) -> tuple[int, int]:
    """Width and height, from the header."""
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", png[16:24])
    return width, height


def has_colour(png: bytes, colour: str, folder: object) -> bool:
    """Whether an area, more than the edge of a letter, is of a colour such as #4c8bc9."""
    path = f"{folder}/picture.png"
    with open(path, "wb") as file:
        file.write(png)
    wanted = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)])
    pixels = np.rint(imread(path)[..., :3] * 255).astype(int)
    return bool((pixels == wanted).all(axis=-1).sum() > 100)


def test_every_device_has_its_row() -> None:
    heights = [size(drawn(step_of(devices=devices)))[1] for devices in (1, 2, 3)]
    assert heights[0] < heights[1] < heights[2]


@pytest.mark.parametrize(
    ("phase", "colour"),
    [
        ("forward", "#4c8bc9"),
        ("backward", "#5fa55a"),
        ("backward_input", "#3f9f93"),
        ("backward_weight", "#a3bf58"),
        ("casts", "#8e78b5"),
        ("norm", "#9a9a9a"),
        ("update", "#9a9a9a"),
    ],
)
def test_each_phase_has_its_colour(phase: str, colour: str, tmp_path: object) -> None:
    png = drawn(step_of(RecordedSpan(phase, 0, 0, None, 0.01, 0.05)))
    assert has_colour(png, colour, tmp_path)
    assert not has_colour(drawn(step_of()), colour, tmp_path)


def test_bringing_inputs_has_a_colour_of_its_own(tmp_path: object) -> None:
    span = RecordedSpan("forward", 0, 0, 3, 0.01, 0.05, transfer_seconds=0.02)
    assert has_colour(drawn(step_of(span)), "#e08a3c", tmp_path)


def test_later_stages_of_a_device_are_lighter(tmp_path: object) -> None:
    early, late = (RecordedSpan("forward", 0, n, 0, n / 20, n / 20 + 0.04) for n in (0, 1))
    lighter = "#74a5d5"  # 0.225 of the way from the colour to white.
    assert has_colour(drawn(step_of(early, late)), lighter, tmp_path)
    assert not has_colour(drawn(step_of(early)), lighter, tmp_path)
