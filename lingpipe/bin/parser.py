"""All flags of all verbs, in one place and without TensorFlow, so that `--help` is instant."""

from __future__ import annotations

import argparse
import math

from lingpipe.task.decode_options import DecodeOptions

_MODEL_HELP = "a registered model (`lingpipe params --list`), or your own as my_project.params.Name"
_SET_HELP = (
    "set a knob of the model, such as num_layers=3, or any field of its params, such as "
    "pipeline.num_stages=4; may be given again: fields win over knobs, later ones over earlier"
)


def build_parser() -> argparse.ArgumentParser:
    """The parser of `lingpipe VERB ...`; `verb` of its result names the chosen one."""
    parser = argparse.ArgumentParser(
        prog="lingpipe",
        description="Trains networks too large for one accelerator as pipelines of stages.",
        allow_abbrev=False,
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    every = (_add_train, _add_evaluate, _add_decode, _add_params, _add_plan, _add_timeline)
    for add in every:
        add(verbs)
    return parser


def _verb(verbs: argparse._SubParsersAction, name: str, text: str) -> argparse.ArgumentParser:
    return verbs.add_parser(name, help=text, description=text, allow_abbrev=False)


def _add_model_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", required=True, metavar="NAME", help=_MODEL_HELP)
    parser.add_argument(
        "--set", action="append", default=[], metavar="PATH=VALUE", dest="overrides", help=_SET_HELP
    )


def _add_run_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--logdir", type=_folder, required=True, metavar="DIR", help="the run directory"
    )
    parser.add_argument(
        "--checkpoint",
        default="last",
        metavar="last|best|STEP",
        help="which checkpoint to load (default: last)",
    )


def _add_train(verbs: argparse._SubParsersAction) -> None:
    text = "Train a model, or go on with a run: the same command resumes it."
    parser = _verb(verbs, "train", text)
    _add_model_flags(parser)
    parser.add_argument(
        "--logdir", type=_folder, required=True, metavar="DIR", help="the run directory"
    )


def _add_evaluate(verbs: argparse._SubParsersAction) -> None:
    parser = _verb(verbs, "evaluate", "Score a checkpoint: BLEU, chrF and perplexity per pair.")
    _add_run_flags(parser)
    parser.add_argument(
        "--split", choices=("dev", "test"), default="test", help="what to score (default: test)"
    )


def _add_decode(verbs: argparse._SubParsersAction) -> None:
    parser = _verb(verbs, "decode", "Translate lines: one line out for each line in.")
    _add_run_flags(parser)
    parser.add_argument("--to", required=True, metavar="LANGUAGE", help="language to translate to")
    parser.add_argument(
        "--from",
        metavar="LANGUAGE",
        dest="source_language",
        help="language of the input (default: any)",
    )
    parser.add_argument(
        "--input", type=_file, metavar="FILE", help="lines to translate (default: stdin)"
    )
    parser.add_argument(
        "--output", type=_file, metavar="FILE", help="where to write (default: stdout)"
    )
    parser.add_argument(
        "--beam_size", type=_count, default=DecodeOptions.beam_size, metavar="N", help="1 is greedy"
    )
    parser.add_argument(
        "--nbest", type=_count, default=DecodeOptions.nbest, metavar="N", help="lines out per line"
    )
    parser.add_argument(
        "--length_penalty",
        type=_number,
        default=DecodeOptions.length_penalty,
        metavar="ALPHA",
        help="-10 to 10; 0 for none",
    )
    parser.add_argument(
        "--batch_size",
        type=_count,
        default=DecodeOptions.max_rows,
        metavar="N",
        help="lines decoded together",
    )
    parser.add_argument(
        "--with_scores", action="store_true", help="write score, a tab, then the line"
    )


def _add_params(verbs: argparse._SubParsersAction) -> None:
    parser = _verb(verbs, "params", "Print the params of a model, list models, or compare two.")
    choice = parser.add_mutually_exclusive_group(required=True)
    choice.add_argument("--model", metavar="NAME", help=_MODEL_HELP)
    choice.add_argument("--list", action="store_true", help="list every registered model")
    choice.add_argument(
        "--knobs", metavar="NAME", help="the knobs of a model, their defaults and meaning"
    )
    choice.add_argument("--diff", nargs=2, metavar=("A", "B"), help="what differs between two")
    parser.add_argument(
        "--set", action="append", default=[], metavar="PATH=VALUE", dest="overrides", help=_SET_HELP
    )


def _add_plan(verbs: argparse._SubParsersAction) -> None:
    parser = _verb(verbs, "plan", "Show how a model would be cut into stages before it is built.")
    _add_model_flags(parser)
    parser.add_argument(
        "--device_memory",
        metavar="BYTES",
        help="memory of one device, such as 16GiB: cut to fit it, or tell why nothing does",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def _add_timeline(verbs: argparse._SubParsersAction) -> None:
    text = "Record a training step on the devices, and show where its time goes."
    parser = _verb(verbs, "timeline", text)
    _add_model_flags(parser)
    parser.add_argument(
        "--output",
        type=_path,
        action="append",
        required=True,
        metavar="FILE.png|FILE.json",
        dest="outputs",
        help="a picture, or a trace for chrome://tracing and Perfetto; may be given again",
    )


def _folder(text: str) -> str:
    """A folder's name; an empty one, as of a variable that is not set, would mean this folder."""
    if not text:
        raise argparse.ArgumentTypeError("it is empty; write . for the current folder")
    return _path(text)


def _file(text: str) -> str:
    """A file's name; an empty one, as of a variable that is not set, would mean a stream."""
    if not text:
        raise argparse.ArgumentTypeError("it is empty; leave the flag out for the standard stream")
    return _path(text)


def _path(text: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not UTF-8; rename it") from error
    return text


def _count(text: str) -> int:
    """A whole number of at least 1."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number of at least 1")
    return value


def _number(text: str) -> float:
    """A finite number."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text!r} must be a number, such as 0.6")
    return value
