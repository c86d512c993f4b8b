"""A corpus in a folder: one folder a pair of languages, one file a split and language.

    corpus/en-de/train.en   corpus/en-de/valid.en   corpus/en-de/test.en
    corpus/en-de/train.de   corpus/en-de/valid.de   corpus/en-de/test.de
    corpus/en-fr/train.en   ...

Line n of `train.de` translates line n of `train.en`. Each file may be gzipped (`train.en.gz`).
Every pair folder must have training files; `valid` (which the command line calls dev) and `test`
may be left out. Other files and folders, such as a README or licences, are left alone.
"""

import enum
import re
from collections.abc import Sequence
from pathlib import Path

from lingpipe.hyperparams.names import listed, nearest
from lingpipe.input.corpus import SPLITS, CorpusError, Pair, ParallelText, check_split
from lingpipe.input.indexed_lines import IndexedLines

ENGLISH = "en"
_LANGUAGE = re.compile(r"[A-Za-z0-9]+([_-][A-Za-z0-9]+)*")


class Directions(enum.Enum):
    """Which directions of a pair folder such as `en-de` to train."""

    both = "both"
    from_english = "from_english"
    to_english = "to_english"


class FolderCorpus:
    """The pairs of a folder; texts are read through when they are first asked for."""

    def __init__(
        self,
        path: Path,
        *,
        languages: Sequence[str] = (),
        directions: Directions = Directions.both,
    ) -> None:
        """Looks at names alone; `check` reads the files.

        Args:
            path: the corpus folder.
            languages: keep only pairs whose languages are all in this list or English; empty
                keeps every pair.
            directions: which directions to offer.

        Raises:
            CorpusError: the folder is missing or has no pairs, a pair lacks a file, or a language
                is unknown.
        """
        self.path = path
        folders = _pair_folders(path)
        _refuse_unknown(languages, folders, path)
        kept = set(languages) | {ENGLISH}
        self._folders = {
            pair: folder
            for (left, right), folder in folders.items()
            if not languages or {left, right} <= kept
            for pair in _directed(left, right, directions)
        }
        if not self._folders:
            wanted = f" of {listed(languages)}" if languages else ""
            raise CorpusError(
                f"{path} has no pair{wanted} in directions {directions.value}; its pairs are: "
                f"{_names(folders)}."
            )
        self._files: dict[Path, IndexedLines] = {}

    def pairs(self) -> tuple[Pair, ...]:
        """The directions on offer, sorted."""
        return tuple(sorted(self._folders))

    def has(self, pair: Pair, split: str) -> bool:
        """Whether the pair has files for a split."""
        return self._find(pair, split, pair.source_language) is not None

    def text(self, pair: Pair, split: str) -> ParallelText:
        """The examples of one pair and split.

        Raises:
            CorpusError: there is no such pair or file, a file is empty, or the two differ in
                length.
            TextError: a file cannot be read or is not UTF-8.
        """
        check_split(split)
        if pair not in self._folders:
            near = nearest(str(pair), map(str, self._folders))
            hint = f"did you mean {near}?" if near else f"it has: {_names(self._folders)}."
            raise CorpusError(f"{self.path} has no pair {pair}; {hint}")
        source = self._lines(pair, split, pair.source_language)
        target = self._lines(pair, split, pair.target_language)
        _refuse_unequal(source, target)
        return ParallelText(source, target)

    def check(self) -> None:
        """Reads every file once and refuses what could not be trained or evaluated on.

        Raises:
            CorpusError, TextError: as `text`.
        """
        for pair in self.pairs():
            for split in SPLITS:
                if self.has(pair, split):
                    self.text(pair, split)

    def _lines(self, pair: Pair, split: str, language: str) -> IndexedLines:
        path = self._find(pair, split, language)
        if path is None:
            raise CorpusError(
                f"{self._folders[pair]} has no {SPLITS[split]}.{language}, so pair {pair} has no "
                f"{split} split; add the file and its other side."
            )
        if path not in self._files:
            self._files[path] = IndexedLines(path)
        lines = self._files[path]
        if not len(lines):
            raise CorpusError(f"{path} is empty; fill it, or remove both sides of this split.")
        return lines

    def _find(self, pair: Pair, split: str, language: str) -> Path | None:
        return _find(self._folders[pair], SPLITS[split], language)


def _pair_folders(path: Path) -> dict[tuple[str, str], Path]:
    """(left language, right language) -> folder, sorted; refuses a pair with files missing."""
    if not path.is_dir():
        raise CorpusError(_missing_folder(path))
    folders: dict[tuple[str, str], Path] = {}
    for folder in sorted(entry for entry in path.iterdir() if entry.is_dir()):
        languages = _languages_of(folder)
        if languages is None:
            continue
        left, right = languages
        if (right, left) in folders:
            raise CorpusError(
                f"{path} holds one pair twice, in {left}-{right} and {right}-{left}; merge them: "
                "one folder serves both directions."
            )
        folders[left, right] = folder
    if not folders:
        found = listed(sorted(entry.name for entry in path.iterdir()))
        raise CorpusError(
            f"{path} has no pair of languages: no folder such as en-de with files train.en and "
            f"train.de. It has: {found}."
        )
    return folders


def _languages_of(folder: Path) -> tuple[str, str] | None:
    """The two languages of a pair folder, or None if it is something else.

    Languages may have hyphens too (en-pt-BR); then the files say where to cut.
    """
    parts = folder.name.split("-")
    cuts = [("-".join(parts[:n]), "-".join(parts[n:])) for n in range(1, len(parts))]
    cuts = [cut for cut in cuts if all(map(_LANGUAGE.fullmatch, cut)) and cut[0] != cut[1]]
    present = {cut: sum(bool(_find(folder, "train", side)) for side in cut) for cut in cuts}
    best = max(cuts, key=lambda cut: present[cut], default=None)
    if best is None or not _has_split_files(folder):
        return None
    for split in SPLITS.values():
        found = {side: _find(folder, split, side) for side in best}
        missing = [f"{split}.{side}" for side, file in found.items() if file is None]
        if len(missing) == 1 or (missing and split == "train"):
            there = listed(sorted(entry.name for entry in folder.iterdir()))
            raise CorpusError(
                f"{folder} has no {' and no '.join(missing)} (or .gz of it); it has: {there}. Both "
                "sides of a pair are needed."
            )
    return best


def _has_split_files(folder: Path) -> bool:
    return any(entry.name.split(".")[0] in SPLITS.values() for entry in folder.iterdir())


def _find(folder: Path, split: str, language: str) -> Path | None:
    names = (f"{split}.{language}", f"{split}.{language}.gz")
    return next((folder / name for name in names if (folder / name).exists()), None)


def _directed(left: str, right: str, directions: Directions) -> list[Pair]:
    both = [Pair(left, right), Pair(right, left)]
    if directions is Directions.from_english:
        return [pair for pair in both if pair.source_language == ENGLISH]
    if directions is Directions.to_english:
        return [pair for pair in both if pair.target_language == ENGLISH]
    return both


def _refuse_unknown(
    languages: Sequence[str], folders: dict[tuple[str, str], Path], path: Path
) -> None:
    known = sorted({language for pair in folders for language in pair})
    for language in languages:
        if language not in known:
            near = nearest(language, known)
            hint = f"did you mean '{near}'?" if near else f"it has: {listed(known)}."
            raise CorpusError(f"{path} has no language '{language}'; {hint}")


def _refuse_unequal(source: IndexedLines, target: IndexedLines) -> None:
    if len(source) == len(target):
        return
    uncounted = [lines.path.name for lines in (source, target) if not lines.ends_with_newline]
    note = f" (the last line of {' and '.join(uncounted)} has no newline)" if uncounted else ""
    raise CorpusError(
        f"{source.path} has {len(source)} lines and {target.path} has {len(target)}{note}; line n "
        "of one must translate line n of the other."
    )


def _missing_folder(path: Path) -> str:
    if path.exists():
        return f"{path} is a file; a corpus is a folder of pairs such as en-de/train.en."
    parent = path.parent
    if not parent.is_dir():
        return f"There is no corpus folder {path}, and neither is there a folder {parent}."
    folders = (entry.name for entry in parent.iterdir() if entry.is_dir())
    names = sorted(name for name in folders if not name.startswith("."))
    near = nearest(path.name, names)
    hint = f"did you mean {parent / near}?" if near else f"{parent} has: {listed(names)}."
    if not path.is_absolute():
        hint += f" It was looked for from {Path.cwd()}, where the command runs."
    return f"There is no corpus folder {path}; {hint}"


def _names(pairs: dict[tuple[str, str], Path] | dict[Pair, Path]) -> str:
    return listed(sorted(str(p) if isinstance(p, Pair) else "-".join(p) for p in pairs))
