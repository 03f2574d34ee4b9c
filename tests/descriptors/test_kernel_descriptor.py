"""Kernels between the tracks of a sequence; wrong series are refused as in `test_gaussian`."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import pdist, squareform
from sklearn.metrics.pairwise import rbf_kernel

from divlearn import tolerances
from divlearn.descriptors.kernel import RBFKernelDescriptor
from divlearn.spd import SPDRepairWarning, check_spd

seeds = st.integers(0, 2**32 - 1)


def sequences(seed: int, lengths=(30, 12, 30, 41), d: int = 4) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((d, n_frames)) for n_frames in lengths]


# --- the formula


@settings(max_examples=12, deadline=None)
@given(seed=seeds, d=st.integers(1, 6), gamma=st.floats(1e-2, 10))
def test_the_plain_formula_is_that_of_scikit_learn(seed, d, gamma):
    X = sequences(seed, d=d)
    expected = [rbf_kernel(one, gamma=gamma / 10) for one in X]
    K = RBFKernelDescriptor(gamma / 10, per_frame=False).fit_transform(X)
    np.testing.assert_allclose(K, expected, rtol=1e-10)
    np.testing.assert_array_equal(K, K.mT)
    np.testing.assert_array_equal(np.einsum("nii->ni", K), 1)


@settings(max_examples=12, deadline=None)
@given(seed=seeds, gamma=st.floats(0.1, 10))
def test_per_frame_divides_by_the_number_of_frames(seed, gamma):
    X = sequences(seed)
    expected = [rbf_kernel(one, gamma=gamma / one.shape[1]) for one in X]
    K = RBFKernelDescriptor(gamma).fit_transform(X)
    np.testing.assert_allclose(K, expected, rtol=1e-11)


# --- gamma


@pytest.mark.parametrize("per_frame", [True, False])
def test_the_median_over_all_training_sequences(per_frame):
    X = sequences(2)
    squares = [pdist(one, "sqeuclidean") / (one.shape[1] if per_frame else 1) for one in X]
    descriptor = RBFKernelDescriptor(per_frame=per_frame).fit(X)
    assert descriptor.gamma_ == pytest.approx(1 / np.median(np.concatenate(squares)), rel=1e-13)
    assert isinstance(descriptor.gamma_, float)


@pytest.mark.parametrize("exponent", [-100, 0, 100])
def test_the_median_adapts_to_any_unit(exponent):
    X = np.stack(sequences(3, lengths=(20, 20)))
    expected = RBFKernelDescriptor().fit_transform(X)
    scaled = RBFKernelDescriptor().fit_transform(X * 2.0**exponent)
    np.testing.assert_array_equal(scaled, expected)


def test_equal_tracks_do_not_count_in_the_median():
    X = np.stack(sequences(4, lengths=(20, 20, 20), d=2))
    padded = np.concatenate([X, X[:, 1:], X[:, 1:], X[:, 1:]], axis=1)
    expected = RBFKernelDescriptor().fit(X).gamma_
    assert RBFKernelDescriptor().fit(padded).gamma_ == pytest.approx(expected)


def test_without_differing_tracks_there_is_no_median():
    X = np.broadcast_to(np.random.default_rng(0).standard_normal((3, 1, 9)), (3, 4, 9))
    with pytest.raises(ValueError, match=r"all tracks of each sample of X are equal; pass a num"):
        RBFKernelDescriptor().fit(X)
    with pytest.warns(SPDRepairWarning, match="3 of 3 matrices"):
        K = RBFKernelDescriptor(0.5).fit_transform(X)
    np.testing.assert_allclose(K[0], 1, atol=2 * tolerances.repair_floor())
    with pytest.raises(ValueError, match=r"at least two tracks, but X has 1; pass a number"):
        RBFKernelDescriptor().fit(X[:, :1])
    np.testing.assert_array_equal(RBFKernelDescriptor(0.5).fit_transform(X[:, :1]), 1)


@pytest.mark.parametrize("gamma", [0, -1.0, np.nan, np.inf, "mean", None, True, [1.0], np.ones(2)])
def test_wrong_gamma(gamma):
    with pytest.raises(ValueError, match=r'must be "median" or a finite number > 0$'):
        RBFKernelDescriptor(gamma).fit(sequences(0))


def test_extreme_gamma():
    X = sequences(6)
    identities = np.broadcast_to(np.eye(4), (4, 4, 4))
    np.testing.assert_array_equal(RBFKernelDescriptor(1e300).fit_transform(X), identities)
    with pytest.warns(SPDRepairWarning):
        K = RBFKernelDescriptor(1e-300).fit_transform(X)
    check_spd(K)


# --- numbers


def test_nearly_equal_tracks_at_a_large_offset():
    # Multiples of 2^-26 can be shifted exactly; sums of squares would lose all of it.
    noise = np.round(np.random.default_rng(7).standard_normal((3, 4, 50)) * 2**10) / 2**26
    expected = [np.exp(-1e10 * squareform(pdist(one, "sqeuclidean")) / 50) for one in noise]
    K = RBFKernelDescriptor(1e10).fit_transform(noise + 1e8)
    np.testing.assert_allclose(K, expected, rtol=1e-13)
    assert (K[:, 0, 1] < 0.99).all()


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_equal_tracks_are_regularised_and_it_is_said(dtype):
    X = np.stack(sequences(8, lengths=(20, 20, 20), d=5)).astype(dtype)
    X[1, 3] = X[1, 0]
    descriptor = RBFKernelDescriptor(0.3).fit(X)
    with pytest.warns(SPDRepairWarning, match=r"^X: 1 of 3 matrices .*\(first: 1\)") as caught:
        K = descriptor.transform(X)
    assert len(caught) == 1
    assert K.dtype == dtype
    np.testing.assert_array_equal(check_spd(K), K)
    floor = tolerances.repair_floor(dtype)
    # Exactly one before the repair, which is the smallest that reaches the floor.
    assert K[1, 0, 3] == pytest.approx(1 - floor, rel=1e-3 * floor)
    assert np.linalg.eigvalsh(K[1].astype("float64"))[0] == pytest.approx(floor, rel=1e-3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(descriptor.transform(X[[0, 2]]), K[[0, 2]])


def test_sequences_of_one_frame():
    X = np.random.default_rng(9).standard_normal((4, 3, 1))
    K = RBFKernelDescriptor(1.0).fit_transform(X)
    np.testing.assert_allclose(K, [rbf_kernel(one, gamma=1.0) for one in X], rtol=1e-12)
