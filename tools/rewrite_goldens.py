"""Writes the golden files anew: the full params and the plan of every registered model.

    python -m tools.rewrite_goldens

The files lie in tests/golden/ and are compared by tests/params/golden_test.py. A
refactor leaves them as they are; a change of numbers shows its whole effect in their diff.
"""

from __future__ import annotations

import os
from pathlib import Path

from lingpipe.base.atomic_file import write_atomically
from lingpipe.bin.quiet_import import import_quietly
from lingpipe.registry import lookup, registered_names

GOLDEN = Path(__file__).parents[1] / "tests" / "golden"


def golden_texts(name: str) -> dict[str, str]:
    """The golden files of a model: path below `GOLDEN` -> text."""
    import_quietly("tensorflow")
    from lingpipe.pipeline.plan import format_plan
    from lingpipe.runtime.parts import plan_of
    from lingpipe.task.model_params import make_experiment

    experiment = make_experiment(lookup(name))
    return {
        f"params/{name}.txt": experiment.to_text(),
        f"plan/{name}.txt": format_plan(plan_of(experiment)),
    }


def main(folder: Path = GOLDEN) -> None:
    """Writes the files that differ and removes those of models that are gone."""
    texts = {path: text for name in registered_names() for path, text in golden_texts(name).items()}
    there = {path.relative_to(folder).as_posix() for path in folder.glob("*/*.txt")}
    for path in sorted(there - texts.keys()):
        (folder / path).unlink()
        print(f"removed {os.path.relpath(folder / path)}")
    for path, text in texts.items():
        if path not in there or (folder / path).read_text(encoding="utf-8") != text:
            write_atomically(folder / path, text.encode())
            print(f"wrote {os.path.relpath(folder / path)}")


if __name__ == "__main__":
    main()
