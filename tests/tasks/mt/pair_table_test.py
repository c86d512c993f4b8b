"""The table that a run prints of its pairs."""

import numpy as np

from tasks.mt.pair_table import pair_table


def test_the_table_by_hand() -> None:
    table = pair_table(["en-de", "en-zh_Hans"], [900, 100], np.array([0.75, 0.25]), draws=2000)
    assert table.splitlines() == [
        "pair        lines    share  probability  epochs",
        "en-de         900   90.00%       75.00%    1.67",
        "en-zh_Hans    100   10.00%       25.00%    5.00",
        "all          1000  100.00%      100.00%    2.00",
    ]
