"""Checks of parameters, and thresholds that compiled code repeats."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from conftest import wishart
from sklearn.base import clone

from divlearn import (
    DivergenceMDM,
    GaussianEmbedding,
    RBFKernelDescriptor,
    Recenter,
    get_engine,
    tolerances,
)
from divlearn.checks import check_count
from divlearn.text import counted


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


@pytest.mark.parametrize(
    ("estimator", "name", "n_rows"),
    [
        (DivergenceMDM(), "filtering", 3),
        (Recenter(), "stretch", 3),
        (GaussianEmbedding(), "normalize", 2),  # of series, not of matrices
        (RBFKernelDescriptor(), "per_frame", 2),
    ],
)
@pytest.mark.parametrize("value", ["no", 0, None])
def test_what_is_not_a_boolean(estimator, name, n_rows, value):
    X = wishart(np.random.default_rng(0), 6, 3)[:, :n_rows]
    clone(estimator).set_params(**{name: np.False_}).fit(X, np.arange(6) % 2)
    with pytest.raises(ValueError, match=f"^{name}={value!r} must be True or False$"):
        clone(estimator).set_params(**{name: value}).fit(X, np.arange(6) % 2)


def test_one_of_a_kind_is_singular():
    one = [counted(1, items) for items in ("matrices", "classes", "entries", "rows of a matrix")]
    assert one == ["1 matrix", "1 class", "1 entry", "1 row of a matrix"]
    assert (counted(0, "matrices"), counted(2, "matrices")) == ("0 matrices", "2 matrices")
    with pytest.raises(ValueError, match="y has 2 rows, but X has 1 matrix "):
        DivergenceMDM().fit(np.eye(2)[None], [0, 1])


@pytest.mark.parametrize("source", ["native/encode.hpp", "src/divlearn/engines/cuda/logdet.cuh"])
def test_compiled_routes_have_the_thresholds_of_the_library(source):
    text = (Path(__file__).parents[1] / source).read_text()
    found = {
        name: float(re.search(rf"{name} = ([\d.e]+)", text)[1])
        for name in ("SPREAD_LIMIT", "SMALLEST_RESULT", "EXPONENT_LIMIT")
    }
    assert found == {
        "SPREAD_LIMIT": tolerances.LARGEST_SPREAD,
        "SMALLEST_RESULT": tolerances.SMALLEST_TRACE,
        "EXPONENT_LIMIT": tolerances.LOGDET_EXPONENT,
    }


@pytest.mark.parametrize("exponents", [(350, 0), (0, 390), (-390, 0), (175, -175)])
@pytest.mark.parametrize("point", [(0.3, 0.7), (0, 1), (1, 0)])
def test_gradients_without_eigenvalues_of_very_different_sizes(exponents, point):
    """Sizes of matrices and atoms differ by powers of two close to the threshold."""
    rng = np.random.default_rng(0)
    X, atoms = (np.ldexp(wishart(rng, 6, 3), exponent) for exponent in exponents)
    weights = rng.uniform(0.5, 1, (6, 6))
    found, expected = (
        get_engine(name, 1).pullback(X, atoms, *point, weights) for name in ("auto", "reference")
    )
    unit = np.abs(expected.whitened).max()
    np.testing.assert_allclose(found.whitened / unit, expected.whitened / unit, atol=1e-12)
