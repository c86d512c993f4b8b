"""`lingpipe params`: what there is, what it consists of, and how two models differ."""

import subprocess
import sys

import pytest

from lingpipe.__main__ import main
from lingpipe.registry import registered_names
from lingpipe.task.experiment import Experiment
from tests.bin.refusals import refusal
from tests.micro_run import environment

Capture = pytest.CaptureFixture[str]


def output(capfd: Capture, *arguments: str) -> str:
    """What a command that succeeds prints; nothing goes to stderr."""
    capfd.readouterr()
    assert main(["params", *arguments]) == 0
    out, err = capfd.readouterr()
    assert err == ""
    return out


def test_the_list_names_every_model_with_its_summary(capfd: Capture) -> None:
    lines = output(capfd, "--list").splitlines()
    assert [line.split()[0] for line in lines] == list(registered_names())
    assert all(len(line.split()) > 3 for line in lines)


def test_the_list_needs_no_tensorflow() -> None:
    program = (
        "import sys\n"
        "from lingpipe.__main__ import main\n"
        "code = main(['params', '--list'])\n"
        "sys.exit('tensorflow was imported' if 'tensorflow' in sys.modules else code)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "mt.multilingual.Tiny" in done.stdout


def test_a_model_is_printed_whole_with_what_was_set(capfd: Capture) -> None:
    text = output(
        capfd, "--model=mt.multilingual.Tiny", "--set", "num_layers=3", "--set=train.seed=5"
    )
    experiment = Experiment.Params.from_text(text)
    assert experiment.to_text() == text
    assert experiment.train.seed == 5
    assert "task.model.num_decoder_layers : 3\n" in text


def test_a_field_beats_the_knob_that_fills_it(capfd: Capture) -> None:
    flags = ("--set=task.model.num_encoder_layers=1", "--set=num_layers=3")
    text = output(capfd, "--model=mt.multilingual.Tiny", *flags)
    assert "task.model.num_encoder_layers : 1\n" in text
    assert "task.model.num_decoder_layers : 3\n" in text


def test_a_difference_is_a_line(capfd: Capture) -> None:
    lines = output(capfd, "--diff", "mt.multilingual.Tiny", "mt.multilingual.Corpus").splitlines()
    assert any(line.startswith("task.model.model_dim : ") for line in lines)
    assert all(" -> " in line for line in lines)
    assert output(capfd, "--diff", "mt.multilingual.Tiny", "mt.multilingual.Tiny") == ""


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--model=mt.multilingual.Tinny"], "did you mean 'mt.multilingual.Tiny'"),
        (
            ["--diff", "mt.multilingual.Tiny", "mt.synthetic.Tag"],
            "did you mean 'mt.synthetic.Tags'",
        ),
        (["--model=mt.multilingual.Tiny", "--set=num_layer=3"], "num_layer"),
        (["--model=mt.multilingual.Tiny", "--set=num_layers=three"], "not 'three'"),
        (["--model=mt.multilingual.Tiny", "--set=dropout=2"], "dropout (2.0) must be"),
        (["--model=json.JSONDecoder"], "is no model"),
    ],
)
def test_mistakes_are_told(capfd: Capture, flags: list[str], words: str) -> None:
    assert words in refusal(capfd, "params", *flags)


def test_a_list_has_nothing_to_set(capfd: Capture) -> None:
    assert "--set has nothing to set" in refusal(capfd, "params", "--list", "--set", "nope=1")
