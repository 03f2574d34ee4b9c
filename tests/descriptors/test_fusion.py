"""Streams become the blocks of one matrix, whatever they come as."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from conftest import wishart
from hypothesis import given, settings
from hypothesis import strategies as st
from pyriemann.estimation import Covariances
from scipy.linalg import block_diag
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from divlearn.descriptors.kernel import RBFKernelDescriptor
from divlearn.descriptors.matrices import BlockDiagonal, Regularize
from divlearn.divergence import abld
from divlearn.spd import check_spd


def streams(seed: int = 0, n: int = 4, sizes=(3, 1, 2)) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [wishart(rng, n, d) for d in sizes]


def samples(*parts) -> list[tuple]:
    return list(zip(*parts, strict=True))


def joined(*parts) -> np.ndarray:
    return np.stack([block_diag(*sample) for sample in samples(*parts)])


# --- matrices


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 5),
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=4),
)
def test_blocks_are_those_of_scipy(seed, n, sizes):
    parts = streams(seed, n, sizes)
    fusion = BlockDiagonal().fit(samples(*parts))
    np.testing.assert_array_equal(fusion.transform(samples(*parts)), joined(*parts))
    assert fusion.n_features_in_ == len(sizes)
    assert fusion.block_sizes_ == list(sizes)
    assert fusion.transformers_ == []


def test_divergences_add_up():
    first, second = streams(1, sizes=(3, 4)), streams(2, sizes=(3, 4))
    fused = (BlockDiagonal().fit_transform(samples(*parts)) for parts in (first, second))
    total = abld(*fused, alpha=0.5, beta=0.7)
    parts = [abld(P, Q, alpha=0.5, beta=0.7) for P, Q in zip(first, second, strict=True)]
    np.testing.assert_allclose(total, sum(parts), rtol=1e-11)


def test_every_form_of_samples():
    P, Q = streams(3, sizes=(2, 2))
    expected = joined(P, Q)
    pairs = samples(P, Q)
    forms = [
        np.stack([P, Q], axis=1),
        pairs,
        tuple(pairs),
        list(map(list, pairs)),
        [np.stack(pair) for pair in pairs],
        np.stack([P, Q], axis=1).tolist(),
        [(p.tolist(), q) for p, q in pairs],
    ]
    for form in forms:
        np.testing.assert_array_equal(BlockDiagonal().fit_transform(form), expected)


def test_types():
    P, Q = streams(4, sizes=(2, 3))
    small = [P.astype("float32"), Q.astype("float32")]
    assert BlockDiagonal().fit_transform(samples(*small)).dtype == np.float32
    assert BlockDiagonal().fit_transform(samples(small[0], Q)).dtype == np.float64


# --- errors


EYES = (np.eye(2), np.eye(3))


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        ([EYES, (np.eye(2),)], ValueError, r"^X\[1\] has 1 streams, but X\[0\] has 2; pass"),
        ([EYES, (np.eye(3), np.eye(3))], ValueError, r"^streams\[0\] is ragged"),
        ([EYES, (np.eye(2), -np.eye(3))], ValueError, r"^streams\[1\]\[1\] has a diagonal entry"),
        ([EYES, (np.eye(2), np.nan * np.eye(3))], ValueError, r"^streams\[1\]\[1\] has a NaN"),
        ([EYES, (np.eye(2), 1j * np.eye(3))], TypeError, r"^streams\[1\] has dtype complex128"),
        ([EYES, "ab"], TypeError, r"^X\[1\] is str, expected a tuple, list or array"),
        ([()], TypeError, r"^X\[0\] is tuple, expected .* of at least one stream"),
        ([], ValueError, r"^X is empty; pass at least one sample"),
        (None, TypeError, r"^X is .*, expected an array or a list of samples of streams"),
        (np.eye(3), ValueError, r"^X has shape \(3, 3\), expected \(n_samples, n_streams, d, d\)"),
        (np.ones((0, 2, 3, 3)), ValueError, r"^X has shape \(0, 2, 3, 3\), .* not empty$"),
        (np.ones((2, 2, 3)), ValueError, r"^streams\[0\] has shape \(2, 3\), expected \(n_matr"),
    ],
)
def test_wrong_samples(X, error, message):
    with pytest.raises(error, match=message):
        BlockDiagonal().fit(X)
    with pytest.raises(error, match=message):
        BlockDiagonal().fit([EYES, EYES]).transform(X)


def test_other_streams_than_in_fit():
    fusion = BlockDiagonal().fit([EYES])
    with pytest.raises(ValueError, match=r"^X has 3 streams, but BlockDiagonal is expecting 2 st"):
        fusion.transform([(*EYES, np.eye(2))])
    message = r"^X has blocks of sizes \[3, 2\], but BlockDiagonal is expecting sizes \[2, 3\] as"
    with pytest.raises(ValueError, match=message):
        fusion.transform([EYES[::-1]])


# --- with a transformer


def videos(seed: int = 0, d: int = 51, lengths=(90, 120, 75)) -> list[tuple]:
    rng = np.random.default_rng(seed)
    return [(rng.random((d, n)), rng.random((d, n - 1))) for n in lengths]


def test_two_streams_of_scores():
    X = videos()
    fusion = BlockDiagonal(RBFKernelDescriptor()).fit(X)
    K = fusion.transform(X)
    assert K.shape == (3, 102, 102)
    check_spd(K)
    assert fusion.block_sizes_ == [51, 51]
    parts = [RBFKernelDescriptor().fit([sample[s] for sample in X]) for s in (0, 1)]
    assert [one.gamma_ for one in fusion.transformers_] == [one.gamma_ for one in parts]
    assert parts[0].gamma_ != parts[1].gamma_
    expected = [one.transform([sample[s] for sample in X]) for s, one in enumerate(parts)]
    np.testing.assert_array_equal(K, joined(*expected))
    np.testing.assert_array_equal(fusion.transform(X[1:]), K[1:])
    assert not hasattr(fusion.transformer, "gamma_")


def test_transformers_that_know_arrays_only():
    X = np.random.default_rng(6).standard_normal((4, 2, 3, 40))
    expected = joined(*(Covariances("cov").fit_transform(X[:, s]) for s in range(2)))
    for form in (X, [tuple(sample) for sample in X], list(X)):
        fused = BlockDiagonal(Covariances("cov")).fit_transform(form)
        np.testing.assert_array_equal(fused, expected)


# --- among other estimators


def test_estimators():
    X = videos(2, d=4)
    fusion = BlockDiagonal(RBFKernelDescriptor(0.5))
    with pytest.raises(NotFittedError):
        fusion.transform(X)
    assert fusion.get_params()["transformer__gamma"] == 0.5
    fusion.set_params(transformer__gamma=2.0).set_output(transform="pandas").fit(X)
    assert [one.gamma_ for one in fusion.transformers_] == [2.0, 2.0]
    assert clone(fusion).transformer.gamma == 2.0
    restored = pickle.loads(pickle.dumps(fusion))
    np.testing.assert_array_equal(restored.transform(X), fusion.transform(X))


def test_every_stream_is_regularized_by_its_own_variance():
    singular = np.ones((2, 2, 2, 2))
    singular[:, 1] *= 100
    with pytest.raises(ValueError, match=r'regularize="shrink", here or to check_spd'):
        BlockDiagonal().fit(singular)
    fused = BlockDiagonal(Regularize(0.25)).fit_transform(singular)
    block = np.array([[1, 0.75], [0.75, 1]])
    np.testing.assert_allclose(fused, np.stack([np.kron(np.diag([1, 100]), block)] * 2))
