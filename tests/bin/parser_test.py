"""All flags of the command line, which are read without TensorFlow."""

import pytest

from lingpipe.bin.parser import build_parser

Capture = pytest.CaptureFixture[str]


def refused(capsys: Capture, *arguments: str) -> str:
    with pytest.raises(SystemExit) as end:
        build_parser().parse_args(arguments)
    assert end.value.code == 2
    return capsys.readouterr().err


def test_decoding_has_defaults() -> None:
    arguments = build_parser().parse_args(["decode", "--logdir=run", "--to=fr"])
    assert arguments.verb == "decode"
    assert (arguments.checkpoint, arguments.beam_size, arguments.nbest) == ("last", 4, 1)
    assert (arguments.length_penalty, arguments.batch_size) == (0.6, 64)
    assert arguments.source_language is arguments.input is arguments.output is None
    assert not arguments.with_scores


@pytest.mark.parametrize("verb", ["train --model=m", "evaluate", "decode --to=fr"])
def test_an_empty_run_directory_is_not_the_current_one(capsys: Capture, verb: str) -> None:
    words = "argument --logdir: it is empty; write . for the current folder"
    assert words in refused(capsys, *verb.split(), "--logdir=")


def test_overrides_add_up_in_their_order() -> None:
    words = ["train", "--model=m", "--logdir=run", "--set", "a=1", "--set=b=2=3"]
    assert build_parser().parse_args(words).overrides == ["a=1", "b=2=3"]


def test_a_list_does_not_grow_from_call_to_call() -> None:
    parser = build_parser()
    for _ in range(2):
        assert parser.parse_args(["plan", "--model=m", "--set", "a=1"]).overrides == ["a=1"]
    assert parser.parse_args(["plan", "--model=m"]).overrides == []


def test_scores_are_of_the_test_split_unless_asked_otherwise() -> None:
    parse = build_parser().parse_args
    assert parse(["evaluate", "--logdir=run"]).split == "test"
    assert parse(["evaluate", "--logdir=run", "--split=dev"]).split == "dev"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "required: VERB"),
        (["trian"], "invalid choice: 'trian'"),
        (["train", "--model=m"], "required: --logdir"),
        (["train", "--model=m", "--logdir=run", "--max_steps=3"], "arguments: --max_steps=3"),
        (["train", "--mod=m", "--logdir=run"], "required: --model"),
        (["evaluate", "--logdir=run", "--split=train"], "invalid choice: 'train'"),
        (["decode", "--logdir=run", "--to=fr", "--nbest=0"], "'0' must be a whole number of at"),
        (["decode", "--logdir=run", "--to=fr", "--nbest=1.5"], "'1.5' must be a whole number of"),
        (["decode", "--logdir=run", "--to=fr", "--batch_size=-3"], "'-3' must be a whole number"),
        (["decode", "--logdir=run", "--to=fr", "--length_penalty=inf"], "'inf' must be a number"),
        (["params"], "one of the arguments --model --list --knobs --diff is required"),
        (["params", "--list", "--model=m"], "not allowed with argument --list"),
        (["timeline", "--model=m"], "required: --output"),
    ],
)
def test_what_cannot_be_meant_is_refused(capsys: Capture, arguments: list[str], words: str) -> None:
    assert words in refused(capsys, *arguments)


@pytest.mark.parametrize("verb", ["train", "evaluate", "decode", "params", "plan", "timeline"])
def test_every_verb_has_a_help_text_that_names_each_flag(capsys: Capture, verb: str) -> None:
    with pytest.raises(SystemExit) as end:
        build_parser().parse_args([verb, "--help"])
    assert end.value.code == 0
    text = capsys.readouterr().out
    assert text.startswith(f"usage: lingpipe {verb}")
    for flag in [line.split()[0] for line in text.splitlines() if line.startswith("  --")]:
        # Each flag is explained beside it or on the line below.
        assert len(text.split(f"\n  {flag}")[1].split("\n  --")[0].split()) > 2, flag


@pytest.mark.parametrize("verb", ["train", "params", "plan", "timeline"])
def test_the_help_says_which_of_two_values_wins(capsys: Capture, verb: str) -> None:
    with pytest.raises(SystemExit):
        build_parser().parse_args([verb, "--help"])
    words = " ".join(capsys.readouterr().out.split())
    assert "fields win over knobs, later ones over earlier" in words
