"""Text to ids and back: SentencePiece, trained and loaded so that no character is lost.

Ids 0 to 3 are padding, unknown, begin and end of sentence; then come the language tags `<2xx>`,
then the pieces. Tags are control symbols, which text never turns into: a user who types `<2de>`
gets the pieces of six characters, while `tag_id("de")` is the one way to ask for German.

Text is taken as it is: no normalisation, white space kept, and characters outside the vocabulary
spelt as UTF-8 bytes. So decode(encode(text)) == text for every text but two kinds: U+2581 (the
sign for a space inside SentencePiece) comes back as a space, and so does a newline, since what is
decoded must stay one line.
"""

import enum
import io
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import sentencepiece

from lingpipe.base.atomic_file import write_atomically
from lingpipe.errors import UserError
from lingpipe.hyperparams import Parameterized
from lingpipe.hyperparams.names import listed, nearest
from lingpipe.input.lines import open_bytes

PAD_ID, UNKNOWN_ID, BEGIN_ID, END_ID = range(4)

_TAG = re.compile(r"<2(.+)>")
# A sentence beyond this is left out of training the vocabulary, which SentencePiece would do in
# silence at 4,192. Its time grows faster than the longest line: 0.5 MB in one line took 200 s.
_MAX_SENTENCE_BYTES = 20_000
_MAX_LINES = 10**9  # It holds them all in memory.
_NUM_THREADS = 4  # Fixed: the sums of the training, and so the pieces, depend on it.


class TokenizerError(UserError, ValueError):
    """A vocabulary that cannot be trained or read, or a language that it has no tag for."""


class Algorithm(enum.Enum):
    """How SentencePiece chooses pieces."""

    unigram = "unigram"  # Kudo, 2018.
    bpe = "bpe"  # Sennrich, Haddow and Birch, 2016.


class Tokenizer:
    """A trained SentencePiece model."""

    def __init__(self, model: bytes, name: str = "The vocabulary") -> None:
        """Loads a model.

        Args:
            model: the bytes of a `.model` file.
            name: what messages call it.

        Raises:
            TokenizerError: it is not a SentencePiece model, or one with other ids than ours.
        """
        self.model = model
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        except (RuntimeError, OSError) as error:
            raise TokenizerError(
                f"{name} is not a SentencePiece model ({len(model)} bytes); train it again."
            ) from error
        ids = [getattr(self._processor, f"{kind}_id")() for kind in ("pad", "unk", "bos", "eos")]
        if not model or ids != [PAD_ID, UNKNOWN_ID, BEGIN_ID, END_ID]:
            raise TokenizerError(
                f"{name} has ids {ids} for padding, unknown, begin and end of sentence; lingpipe "
                "needs 0, 1, 2, 3. Train it with lingpipe."
            )
        self._tags = self._find_tags()

    @classmethod
    def load(cls, path: Path) -> "Tokenizer":
        """The tokenizer of a `.model` file.

        Raises:
            TextError: the file cannot be read.
            TokenizerError: as the constructor.
        """
        with open_bytes(path) as file:
            return cls(file.read(), str(path))

    def save(self, path: Path) -> None:
        """Writes the model so that a reader sees all of it or nothing.

        Raises:
            WriteError: it cannot be written.
        """
        write_atomically(path, self.model)

    @property
    def size(self) -> int:
        """How many ids there are: every id is in [0, size)."""
        return int(self._processor.vocab_size())

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages that have a tag, in the order of their ids."""
        return tuple(self._tags)

    def tag_id(self, language: str) -> int:
        """The id of `<2language>`.

        Raises:
            TokenizerError: there is none; the message has the nearest language.
        """
        if language not in self._tags:
            near = nearest(language, self._tags)
            hint = f"did you mean '{near}'?" if near else f"it has: {listed(self._tags)}."
            raise TokenizerError(
                f"The model does not translate into '{language}': its vocabulary has no tag for "
                f"it; {hint}"
            )
        return self._tags[language]

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """The ids of each line's pieces: no tag, no begin or end of sentence."""
        return self._processor.encode(list(lines), num_threads=1)

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """The text of each sequence of ids, one line each; ids 0 to 3 and tags have no text.

        Raises:
            ValueError: an id is not below `size`.
        """
        texts = []
        for sequence in ids:
            row = [int(token) for token in sequence if token != UNKNOWN_ID]
            if row and not 0 <= min(row) <= max(row) < self.size:
                raise ValueError(f"Ids must be in [0, {self.size}); got {min(row)} to {max(row)}.")
            texts.append(self._processor.decode(row).replace("\n", " "))
        return texts

    def _find_tags(self) -> dict[str, int]:
        tags = {}
        for number in range(END_ID + 1, self._processor.vocab_size()):
            match = _TAG.fullmatch(self._processor.id_to_piece(number))
            if not (match and self._processor.is_control(number)):
                break  # Tags come first.
            tags[match[1]] = number
        return tags


class TokenizerTrainer(Parameterized):
    """Trains a tokenizer: the same text gives the same model, byte for byte."""

    class Params(Parameterized.Params):
        """How the vocabulary is chosen."""

        algorithm: Algorithm = Algorithm.unigram  # unigram or bpe.
        character_coverage: float = 0.9995  # Share of the text's characters that get an own piece.
        byte_fallback: bool = True  # Spell other characters as bytes; without, they are lost.
        max_lines: int = 2_000_000  # Most lines of text that it is trained on.

        def inconsistencies(self) -> Iterable[tuple[str, str]]:
            """Values that cannot work."""
            if not 0.98 <= self.character_coverage <= 1:
                yield (
                    "character_coverage",
                    f"character_coverage ({self.character_coverage}) must be in [0.98, 1].",
                )
            if not 1 <= self.max_lines <= _MAX_LINES:
                yield "max_lines", f"max_lines ({self.max_lines}) must be in [1, {_MAX_LINES:_}]."

    def __init__(self, params: Params) -> None:
        """Keeps the params."""
        self.params = params

    def train(
        self, lines: Iterable[str], *, languages: Sequence[str], vocabulary_size: int
    ) -> Tokenizer:
        """A tokenizer for text like `lines`.

        Lines with NUL in them teach it nothing; empty ones neither.

        Args:
            lines: text; no more than `max_lines` of it are read.
            languages: each gets a tag.
            vocabulary_size: most ids; there are fewer where the text has too few pieces.

        Raises:
            TokenizerError: there is no text, or vocabulary_size does not even hold its characters.
        """
        model = io.BytesIO()
        feed = _Feed(itertools.islice(lines, self.params.max_lines))
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(feed),
                model_writer=model,
                control_symbols=[f"<2{language}>" for language in languages],
                vocab_size=vocabulary_size,
                # Too little text for vocabulary_size is no error: the vocabulary stays smaller.
                hard_vocab_limit=False,
                model_type=self.params.algorithm.value,
                character_coverage=self.params.character_coverage,
                byte_fallback=self.params.byte_fallback,
                # Text is taken as it is. The dummy prefix lets a word at the start of a line share
                # its piece with the same word further on; decoding takes it off again.
                normalization_rule_name="identity",
                remove_extra_whitespaces=False,
                add_dummy_prefix=True,
                pad_id=PAD_ID,
                unk_id=UNKNOWN_ID,
                bos_id=BEGIN_ID,
                eos_id=END_ID,
                max_sentence_length=_MAX_SENTENCE_BYTES,
                num_threads=_NUM_THREADS,
                minloglevel=3,  # Its log goes to stderr, where a user's messages are.
            )
        except (RuntimeError, OSError) as error:
            if feed.failure is not None:
                raise feed.failure from None
            raise self._failure(str(error), vocabulary_size, len(languages)) from error
        return Tokenizer(model.getvalue())

    def _failure(self, message: str, size: int, num_tags: int) -> TokenizerError:
        ours = f"4 special ids, language tags ({num_tags})"
        fixed = END_ID + 1 + num_tags
        if self.params.byte_fallback:
            ours, fixed = f"{ours}, 256 bytes", fixed + 256
        needed = re.search(r"smaller than required_chars\. \d+ vs (\d+)", message)
        if needed:
            return TokenizerError(
                f"vocabulary_size ({size}) is too small: {ours} and the text's characters make "
                f"{needed[1]}. Set vocabulary_size to more than that, or lower character_coverage "
                f"({self.params.character_coverage})."
            )
        if "sentences_.empty()" in message:
            return TokenizerError("There is no text to train a vocabulary on: every line is empty.")
        if size <= fixed:
            return TokenizerError(
                f"vocabulary_size ({size}) is too small: {ours} alone make {fixed}. Set "
                "vocabulary_size to at least a few hundred more."
            )
        return TokenizerError(f"SentencePiece could not train a vocabulary: {message}")


class _Feed:
    """Hands lines to the trainer, which would flatten an exception of ours into a text."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = lines
        self.failure: BaseException | None = None

    def __iter__(self) -> Iterator[str]:
        try:
            yield from self._lines
        except BaseException as error:
            self.failure = error
            raise
