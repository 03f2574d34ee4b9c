"""The regulariser of descriptors: what it changes, by how much, what it leaves and what it says."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from conftest import wishart
from hypothesis import given, settings
from hypothesis import strategies as st

from divlearn import tolerances
from divlearn.descriptors.matrices import check_floor, ensure_definite
from divlearn.spd import SPDRepairWarning, check_spd

seeds = st.integers(0, 2**32 - 1)


def singular(rng: np.random.Generator, n: int, d: int, rank: int) -> np.ndarray:
    factors = rng.standard_normal((n, d, rank))
    return factors @ factors.mT


def quiet(covariances: np.ndarray, floor: float) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SPDRepairWarning)
        return ensure_definite(covariances, floor)


def smallest_correlation(covariances: np.ndarray) -> np.ndarray:
    """Smallest eigenvalue of the correlation, in float64."""
    covariances = covariances.astype("float64")
    deviations = np.sqrt(np.diagonal(covariances, axis1=-2, axis2=-1))
    correlations = covariances / deviations[..., :, None] / deviations[..., None, :]
    return np.linalg.eigvalsh(correlations)[..., 0]


# --- the repair


@settings(max_examples=25, deadline=None)
@given(
    seed=seeds,
    d=st.integers(2, 9),
    floor=st.sampled_from([1e-12, 2.0**-26, 1e-3, 0.1, 0.5, 0.9]),
    data=st.data(),
)
def test_singular_matrices_reach_the_floor_and_no_more(seed, d, floor, data):
    rank = data.draw(st.integers(1, d - 1))
    covariances = singular(np.random.default_rng(seed), 3, d, rank)
    with pytest.warns(SPDRepairWarning):
        repaired = ensure_definite(covariances, floor)
    np.testing.assert_allclose(smallest_correlation(repaired), floor, rtol=0, atol=2e-14 * d)
    # A convex combination with the diagonal, which itself stays bit by bit.
    diagonal = np.einsum("nii,ij->nij", covariances, np.eye(d))
    np.testing.assert_array_equal(np.einsum("nii->ni", repaired), np.einsum("nii->ni", covariances))
    off = ~np.eye(d, dtype=bool)
    for one, original, target in zip(repaired, covariances, diagonal, strict=True):
        i, j = np.unravel_index(np.argmax(np.abs(original) * off), (d, d))
        weight = 1 - one[i, j] / original[i, j]
        expected = (1 - weight) * original + weight * target
        np.testing.assert_allclose(one, expected, rtol=1e-12, atol=1e-15 * np.abs(original).max())
    np.testing.assert_array_equal(repaired, repaired.mT)


@settings(max_examples=25, deadline=None)
@given(seed=seeds, d=st.integers(1, 9), dtype=st.sampled_from(["float64", "float32"]))
def test_the_repair_is_idempotent(seed, d, dtype):
    rng = np.random.default_rng(seed)
    covariances = singular(rng, 4, d, max(1, d // 2)).astype(dtype)
    floor = check_floor("auto", dtype, d)
    repaired = quiet(covariances, floor)
    assert repaired.dtype == dtype
    # Warnings are errors here, so this also says that there is none.
    np.testing.assert_array_equal(ensure_definite(repaired, floor), repaired)
    check_spd(repaired)


@settings(max_examples=15, deadline=None)
@given(seed=seeds, d=st.integers(2, 7))
def test_units_of_variables_commute_with_the_repair(seed, d):
    rng = np.random.default_rng(seed)
    covariances = singular(rng, 3, d, d - 1)
    floor = tolerances.repair_floor()
    repaired = quiet(covariances, floor)
    powers = np.exp2(rng.integers(-60, 60, d))
    exact = powers[:, None] * covariances * powers
    np.testing.assert_array_equal(quiet(exact, floor), powers[:, None] * repaired * powers)
    units = 10.0 ** rng.uniform(-20, 20, d)
    scaled = quiet(units[:, None] * covariances * units, floor)
    np.testing.assert_allclose(scaled, units[:, None] * repaired * units, rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_what_is_definite_comes_back_itself(dtype):
    covariances = wishart(np.random.default_rng(0), 20, 5, 40).astype(dtype)
    floor = check_floor("auto", dtype, 5)
    assert ensure_definite(covariances, floor) is covariances
    # Definite enough, but by less than the quick test can tell: still nothing is changed or said.
    floor = 0.9 * float(smallest_correlation(covariances).min())
    assert ensure_definite(covariances, floor) is covariances


def test_only_what_falls_short_is_changed():
    rng = np.random.default_rng(1)
    covariances = wishart(rng, 6, 4, 30)
    covariances[[1, 4]] = singular(rng, 2, 4, 2)
    before = covariances.copy()
    with pytest.warns(SPDRepairWarning, match=r"2 of 6 matrices .*\(first: 1\) and were shrunk"):
        repaired = ensure_definite(covariances, 1e-6)
    np.testing.assert_array_equal(repaired[[0, 2, 3, 5]], covariances[[0, 2, 3, 5]])
    np.testing.assert_array_equal(covariances, before)
    changed = np.flatnonzero((repaired != covariances).any(axis=(1, 2)))
    np.testing.assert_array_equal(changed, [1, 4])


# --- variables without variance


def test_a_variable_without_variance_gets_the_floor_times_the_mean_of_the_others():
    covariances = np.diag([4.0, 0.0, 2.0])[None]
    covariances[0, 0, 1] = covariances[0, 1, 0] = -1e-20  # left behind by rounding
    message = (
        r"^series: 1 of 1 matrices had channels without variance \(first: 0, number 1\), which got "
        r"0\.01 of the mean variance$"
    )
    with pytest.warns(SPDRepairWarning, match=message):
        repaired = ensure_definite(covariances, 0.01, name="series", variables="channels")
    np.testing.assert_allclose(repaired, [np.diag([4.0, 0.03, 2.0])])
    np.testing.assert_array_equal(ensure_definite(repaired, 0.01), repaired)


def test_variables_without_variance_beside_a_singular_rest():
    covariances = np.ones((3, 4, 4))
    covariances[:, 3] = covariances[:, :, 3] = 0
    covariances[0] = np.eye(4)
    with pytest.warns(SPDRepairWarning) as caught:
        repaired = ensure_definite(covariances, 0.1, name="images")
    assert len(caught) == 1
    assert str(caught[0].message) == (
        "images: 2 of 3 matrices had features without variance (first: 1, number 3), which got 0.1 "
        "of the mean variance; 2 of 3 matrices had a correlation with an eigenvalue below 0.1 "
        "(first: 1) and were shrunk towards the diagonal, by a weight of 0.1 at most"
    )
    np.testing.assert_array_equal(repaired[0], np.eye(4))
    np.testing.assert_allclose(smallest_correlation(repaired[1:]), 0.1)
    np.testing.assert_allclose(repaired[1, 3], [0, 0, 0, 0.1])


@pytest.mark.parametrize("d", [1, 3])
def test_without_any_variance_there_is_no_scale(d):
    covariances = np.stack([np.eye(d), np.zeros((d, d)), np.zeros((d, d))])
    with pytest.raises(ValueError, match=r"^X: matrix 1 \(and 1 more\) has no variance .*; drop"):
        ensure_definite(covariances, 1e-8)


# --- the parameter


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_auto_is_the_floor_of_all_repairs(dtype):
    assert check_floor("auto", dtype) == tolerances.repair_floor(dtype)
    assert check_floor("auto", dtype, 100) == tolerances.repair_floor(dtype)
    assert check_floor(0.25, dtype, 100) == check_floor(np.float32(0.25), dtype) == 0.25


@pytest.mark.parametrize("floor", [0, 1, -0.1, 2, np.nan, np.inf, True, None, "none", [0.1], 1e-3j])
def test_other_values_are_refused(floor):
    with pytest.raises(ValueError, match=r'must be "auto" or a number > 0 and < 1$'):
        check_floor(floor)


def test_floors_below_rounding_are_refused():
    assert check_floor(1e-6, "float64", 50) == 1e-6
    message = r"^floor=1e-06 must be >= 4\.77e-05, or matrices of size 50 in float32 are singular"
    with pytest.raises(ValueError, match=message):
        check_floor(1e-6, "float32", 50)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("d", [2, 20, 100])
def test_the_least_floor_survives_rounding(d, dtype):
    floor = 8 * tolerances.positive_definite(d, dtype)
    assert check_floor(floor, dtype, d) == floor
    covariances = singular(np.random.default_rng(d), 10, d, max(1, d // 3))
    check_spd(quiet(covariances, floor).astype(dtype))
    check_spd(quiet(covariances.astype(dtype), floor))
