"""Checks of parameters."""

from __future__ import annotations

import numpy as np
import pytest

from divlearn.checks import check_count


@pytest.mark.parametrize("value", [2, np.int8(2), np.uint64(2)])
def test_integers_of_all_kinds_become_int(value):
    count = check_count(value, "n", least=2, most=2)
    assert count == 2
    assert type(count) is int


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (1, ValueError, "n=1 must be >= 2 and <= 9; lower n"),
        (10, ValueError, "n=10 must be >= 2 and <= 9; lower n"),
        (2.0, TypeError, "n=2.0 must be an integer >= 2 and <= 9; lower n"),
        (True, TypeError, "n=True must be an integer >= 2 and <= 9; lower n"),
        ("2", TypeError, "n='2' must be an integer >= 2 and <= 9; lower n"),
        (None, TypeError, "n=None must be an integer >= 2 and <= 9; lower n"),
    ],
)
def test_messages_name_value_relation_and_fix(value, error, message):
    with pytest.raises(error, match=f"^{message}$"):
        check_count(value, "n", least=2, most=9, fix="; lower n")
