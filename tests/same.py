"""Two fitted models, compared attribute by attribute."""

from __future__ import annotations

from functools import cached_property

import numpy as np


def assert_same(first, second):
    """Compare all attributes of all objects inside, and types."""
    assert type(first) is type(second)
    if isinstance(first, np.ndarray):
        assert first.dtype == second.dtype
        np.testing.assert_array_equal(first, second)
    elif isinstance(first, np.random.RandomState):
        assert_same(first.get_state(), second.get_state())
    elif isinstance(first, dict):
        assert list(first) == list(second)
        for key in first:
            assert_same(first[key], second[key])
    elif isinstance(first, list | tuple):
        assert len(first) == len(second)
        for one, other in zip(first, second, strict=True):
            assert_same(one, other)
    elif hasattr(first, "__dict__"):
        lazy = {
            key for key in vars(first) if isinstance(getattr(type(first), key, 0), cached_property)
        }
        kept = {key: value for key, value in vars(first).items() if key not in lazy}
        assert_same(kept, vars(second))
    else:
        np.testing.assert_equal(first, second)
