"""The table of a corpus' pairs that a run prints at its start."""

from collections.abc import Sequence

from lingpipe.input.mixing import Float64s, expected_epochs

_HEAD = ("pair", "lines", "share", "probability", "epochs")


def pair_table(
    names: Sequence[str], counts: Sequence[int], probabilities: Float64s, *, draws: float
) -> str:
    """A line a pair and a line of sums, in columns.

    Args:
        names: the pairs.
        counts: lines of each.
        probabilities: how often each is drawn, float64 [pairs].
        draws: examples that the run sees.
    """
    total = sum(counts)
    epochs = expected_epochs(counts, probabilities, draws)
    rows = [
        (name, str(count), f"{count / total:.2%}", f"{probability:.2%}", f"{epoch:.2f}")
        for name, count, probability, epoch in zip(
            names, counts, probabilities, epochs, strict=True
        )
    ]
    rows.append(("all", str(total), "100.00%", "100.00%", f"{draws / total:.2f}"))
    widths = [max(len(row[i]) for row in (_HEAD, *rows)) for i in range(len(_HEAD))]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])])
        for row in (_HEAD, *rows)
    )
