"""The input of translation from a corpus folder; `tiny` is a small corpus that ships with it."""

from collections.abc import Iterable
from pathlib import Path

from lingpipe.input.folder_corpus import Directions, FolderCorpus
from tasks.mt.parallel_input import ParallelInput

TINY = "tiny"


class TranslationInput(ParallelInput):
    """Sentence pairs from the files of a corpus folder; folder_corpus.py says how it looks."""

    class Params(ParallelInput.Params):
        """Which corpus, and what of it."""

        corpus: str = TINY  # A corpus folder; "tiny" is the one in tasks/mt/data.
        languages: list[str] = []  # Keep pairs of these languages and English; empty keeps all.
        directions: Directions = Directions.both  # both, from_english or to_english.

        def inconsistencies(self) -> Iterable[tuple[str, str]]:
            """A corpus without a name, which would mean the current folder."""
            yield from super().inconsistencies()
            if not self.corpus:
                yield "corpus", 'corpus is empty; name a folder, "." for this one, or "tiny".'

    params: Params

    def open_corpus(self) -> FolderCorpus:
        """The folder of the params.

        Raises:
            CorpusError: it is missing or incomplete, or a language is unknown.
        """
        return FolderCorpus(
            corpus_path(self.params.corpus),
            languages=self.params.languages,
            directions=self.params.directions,
        )


def corpus_path(corpus: str) -> Path:
    """The folder that `corpus` names; write `./tiny` for a folder of your own called tiny."""
    return Path(__file__).parent / "data" / TINY if corpus == TINY else Path(corpus)
