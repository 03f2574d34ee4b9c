"""Choosing among candidates."""

from __future__ import annotations

import numpy as np
import pytest

from divlearn.fitting.selection import choose


@pytest.mark.parametrize(
    ("scores", "best"),
    [
        ([1.0, 3.0, 3.0, 2.0], 1),  # the first of those that tie
        ([1.0, np.nan, 2.0], 2),  # what cannot be judged loses
        ([-np.inf, np.nan], 0),
        ([np.nan, np.nan], 0),  # where nothing can be, the first
    ],
)
def test_the_best_score_is_chosen(scores, best):
    found, given = choose(range(len(scores)), scores.__getitem__)
    assert found == best
    np.testing.assert_array_equal(given, scores)
