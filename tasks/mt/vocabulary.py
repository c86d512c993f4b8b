"""What decoding needs to know of the input: the tokenizer, and the pairs that were trained.

It lies in the run directory, in `vocab/spm.model` and `vocab/languages.json`, so that a run can be
decoded where its corpus does not exist.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from lingpipe.base.atomic_file import write_atomically
from lingpipe.errors import UserError
from lingpipe.hyperparams.names import listed, nearest
from lingpipe.input.corpus import Pair
from lingpipe.input.lines import read_lines
from lingpipe.input.tokenizer import END_ID, Tokenizer
from tasks.mt.examples import Examples, Sentences

_FORMAT = 1
_MODEL = "spm.model"
_LANGUAGES = "languages.json"


class VocabularyError(UserError, ValueError):
    """A vocabulary folder that cannot be used, or a language that was not trained."""


class TranslationVocabulary:
    """A tokenizer with a tag for each target language, and the pairs that it serves."""

    def __init__(self, tokenizer: Tokenizer, pairs: Sequence[Pair]) -> None:
        """Puts the two together.

        Raises:
            TokenizerError: a target language has no tag.
        """
        self.tokenizer = tokenizer
        self.pairs = tuple(pairs)
        for pair in pairs:
            tokenizer.tag_id(pair.target_language)

    @staticmethod
    def exists(folder: Path) -> bool:
        """Whether `save` has finished in this folder."""
        return (folder / _LANGUAGES).exists()

    def save(self, folder: Path) -> None:
        """Writes both files; the list of languages last, since it tells that all is there.

        Raises:
            WriteError: the folder cannot be written.
        """
        self.tokenizer.save(folder / _MODEL)
        pairs = [[pair.source_language, pair.target_language] for pair in self.pairs]
        text = json.dumps({"format": _FORMAT, "pairs": pairs}, indent=1)
        write_atomically(folder / _LANGUAGES, f"{text}\n".encode())

    @classmethod
    def load(cls, folder: Path) -> "TranslationVocabulary":
        """Reads what `save` wrote.

        Raises:
            TextError: a file cannot be read.
            VocabularyError: a file does not hold what `save` writes.
            TokenizerError: the model is damaged.
        """
        path = folder / _LANGUAGES
        text = "\n".join(read_lines(path))
        try:
            record = json.loads(text)
            known = record["format"] == _FORMAT
            pairs = [Pair(str(source), str(target)) for source, target in record["pairs"]]
        except (ValueError, KeyError, TypeError) as error:
            raise VocabularyError(
                f"{path} is damaged ({error!r}); restore it from a copy of the run directory."
            ) from error
        if not known:
            raise VocabularyError(
                f"{path} has format {record['format']}; this version of lingpipe reads {_FORMAT}."
            )
        return cls(Tokenizer.load(folder / _MODEL), pairs)

    @property
    def size(self) -> int:
        """How many ids there are: V."""
        return self.tokenizer.size

    @property
    def source_languages(self) -> tuple[str, ...]:
        """The languages that were translated from in training, sorted."""
        return tuple(sorted({pair.source_language for pair in self.pairs}))

    @property
    def target_languages(self) -> tuple[str, ...]:
        """The languages that were translated into in training, sorted."""
        return tuple(sorted({pair.target_language for pair in self.pairs}))

    def check_source(self, language: str) -> None:
        """Refuses a source language that was not trained.

        Raises:
            VocabularyError: with the nearest language that was.
        """
        if language not in self.source_languages:
            near = nearest(language, self.source_languages)
            known = listed(self.source_languages)
            hint = f"did you mean '{near}'?" if near else f"it translates from: {known}."
            raise VocabularyError(f"The model does not translate from '{language}'; {hint}")

    def encode_source(self, line: str, to: str) -> list[int]:
        """A source line as the model sees it: tag, pieces, end.

        Raises:
            TokenizerError: there is no tag for the language `to`.
        """
        return [self.tokenizer.tag_id(to), *self.tokenizer.encode([line])[0], END_ID]

    def encode_pairs(self, sources: Sequence[str], targets: Sequence[str], to: str) -> Examples:
        """Given translations, to be scored or trained on; example n stands at position n.

        Raises:
            TokenizerError: there is no tag for the language `to`.
            VocabularyError: there are not as many targets as sources.
        """
        if len(sources) != len(targets):
            raise VocabularyError(
                f"There are {len(sources)} source lines and {len(targets)} target lines; line n of "
                "one must translate line n of the other."
            )
        return Examples(
            sources=Sentences.tokenize(sources, self.tokenizer),
            targets=Sentences.tokenize(targets, self.tokenizer),
            tags=np.full(len(sources), self.tokenizer.tag_id(to), np.int32),
            positions=np.arange(len(sources), dtype=np.int64),
        )

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """The text of each sequence of ids; see Tokenizer.decode."""
        return self.tokenizer.decode(ids)
