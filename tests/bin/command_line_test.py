"""The program as it is installed: where it looks for modules, what it says, how it ends."""

import subprocess
import sys
from pathlib import Path

import pytest

from lingpipe.__main__ import main
from tests.micro_run import environment, lingpipe

MODEL = '''"""A user's own models."""

from lingpipe.registry import register
from tasks.mt.model_params import TranslationModel


@register
class Mine(TranslationModel):
    """Three layers."""

    num_layers = 3
'''


@pytest.fixture
def installed(tmp_path: Path) -> list[str]:
    """The script that `pip install` makes, in a folder of its own."""
    script = tmp_path / "bin" / "lingpipe"
    script.parent.mkdir()
    script.write_text("import sys\nfrom lingpipe.__main__ import main\nsys.exit(main())\n")
    return [sys.executable, str(script)]


def run(words: list[str], folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words,
        cwd=folder,
        env=environment(**variables),
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_model_in_the_working_directory_is_found_and_nothing_else_is_said(
    installed: list[str], tmp_path: Path
) -> None:
    """Not a line of TensorFlow's own log comes with it."""
    package = tmp_path / "work" / "my_project"
    package.mkdir(parents=True)
    (package / "params.py").write_text(MODEL)
    # A file of the user's does not stand in for a module of the library's.
    (package.parent / "tqdm.py").write_text("raise ImportError('the wrong tqdm')")
    words = [*installed, "params", "--model=my_project.params.Mine"]
    done = run(words, package.parent, TF_CPP_MIN_LOG_LEVEL="3")
    assert (done.returncode, done.stderr) == (0, "")
    assert "task.model.num_encoder_layers : 3\n" in done.stdout


def test_a_safe_path_stays_safe(installed: list[str], tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MODEL)
    done = run([*installed, "params", "--model=mine.Mine"], tmp_path, PYTHONSAFEPATH="1")
    assert done.returncode == 2
    assert done.stderr.startswith("lingpipe params: There is no model 'mine.Mine'")


def test_a_broken_module_of_the_user_s_is_told_with_its_line(
    installed: list[str], tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text("import no_such_library\n")
    done = run([*installed, "params", "--model=mine.Mine"], tmp_path)
    assert done.returncode == 2
    assert f"{tmp_path}/mine.py, line 1" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_class_that_is_no_model_is_told(installed: list[str], tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from lingpipe.hyperparams import Params\nfrom lingpipe.registry import register\n\n\n"
        "@register\nclass Mine(Params):\n    'Not derived from a model.'\n"
    )
    done = run([*installed, "plan", "--model=mine.Mine"], tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("lingpipe plan: mine.Mine is a params class, but no model: it ")


@pytest.mark.parametrize(
    ("redirection", "code", "message"),
    [
        (">&-", 2, "lingpipe params: Cannot write standard output: Bad file descriptor.\n"),
        (">/dev/full", 2, "lingpipe params: Cannot write standard output: No space left on dev"),
        ("<&-", 0, ""),
        ("2>&-", 0, ""),
        ("2>/dev/full", 0, ""),
    ],
)
def test_a_closed_or_full_stream_is_told_where_it_matters(
    installed: list[str], tmp_path: Path, redirection: str, code: int, message: str
) -> None:
    script = f'exec "$@" {redirection}'
    done = run(["bash", "-c", script, "-", *installed, "params", "--list"], tmp_path)
    assert done.returncode == code
    assert done.stderr.startswith(message)
    assert "Traceback" not in done.stderr
    assert ("mt.multilingual.Tiny" in done.stdout) == (code == 0)


def test_a_working_directory_that_is_gone_is_no_failure(
    installed: list[str], tmp_path: Path
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    words = ["bash", "-c", 'rmdir "$PWD"; exec "$@"', "-", *installed, "params", "--list"]
    done = run(words, gone)
    assert (done.returncode, done.stderr) == (0, "")
    assert "mt.multilingual.Tiny" in done.stdout


def test_a_module_run_is_the_same_program() -> None:
    done = lingpipe("params", "--list")
    assert done.returncode == 0
    assert b"mt.multilingual.Tiny" in done.stdout


def test_an_unknown_verb_lists_those_there_are() -> None:
    done = lingpipe("trian")
    assert done.returncode == 2
    assert b"invalid choice: 'trian' (choose from" in done.stderr
    assert b"Traceback" not in done.stderr


def test_help_needs_no_tensorflow_and_lists_every_verb() -> None:
    program = (
        "import sys\n"
        "from lingpipe.__main__ import main\n"
        "try: main(['--help'])\n"
        "finally: assert 'tensorflow' not in sys.modules\n"
    )
    done = run([sys.executable, "-c", program], Path.cwd())
    assert done.returncode == 0
    for verb in ("train", "evaluate", "decode", "params", "plan", "timeline"):
        assert f"\n    {verb} " in done.stdout


def test_control_c_outside_of_training_is_told_in_a_line(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("lingpipe.bin.plan.plan_of", interrupt)
    capfd.readouterr()  # What TensorFlow said if this was what imported it.
    assert main(["plan", "--model=mt.multilingual.Tiny"]) == 1
    assert capfd.readouterr().err == "lingpipe plan: interrupted.\n"
