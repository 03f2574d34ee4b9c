"""Discriminants in the dual against scikit-learn, and against the formulas in full space."""

from __future__ import annotations

import numpy as np
import pytest
from fake_device import DeviceArray
from scipy.special import softmax
from scipy.stats import multivariate_normal
from sklearn.discriminant_analysis import (
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
)

from divlearn.heads.discriminants import RDA, fit_lda

PRIORS = np.array([0.2, 0.5, 0.3])


def make(n_entries, counts=(6, 9, 5), seed=0):
    rng = np.random.default_rng(seed)
    codes = np.repeat(np.arange(3), counts)
    shapes = rng.standard_normal((3, n_entries, n_entries)) / np.sqrt(n_entries)
    noise = np.einsum("nij,nj->ni", shapes[codes], rng.standard_normal((len(codes), n_entries)))
    vectors = rng.standard_normal((3, n_entries))[codes] + noise
    return vectors, codes, 2 * rng.standard_normal((30, n_entries))


@pytest.mark.parametrize("n_entries", [4, 60])
@pytest.mark.parametrize("counts", [(6, 9, 5), (1, 9, 5)])
@pytest.mark.filterwarnings("ignore:Only one sample available")
def test_lda_is_that_of_scikit_learn(n_entries, counts):
    vectors, codes, new = make(n_entries, counts)
    theirs = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto", priors=PRIORS)
    model = fit_lda(vectors, codes, PRIORS)
    scores = model.decide(new)
    expected = theirs.fit(vectors, codes).predict_log_proba(new)
    np.testing.assert_allclose(scores - scores[:, :1], expected - expected[:, :1], rtol=1e-7)


@pytest.mark.parametrize("n_entries", [4, 60])
@pytest.mark.parametrize(("shrink", "pool"), [(0.01, 0.1), (0.3, 0.9), (0.6, 0.0)])
@pytest.mark.parametrize("counts", [(6, 9, 5), (1, 9, 5)])
def test_rda_is_that_of_the_formula_in_full_space(n_entries, shrink, pool, counts):
    vectors, codes, new = make(n_entries, counts)
    weights = np.random.default_rng(1).uniform(0.5, 2, len(codes))
    shares = weights / weights.sum()
    groups = [np.flatnonzero(codes == k) for k in range(3)]
    means = [np.average(vectors[rows], axis=0, weights=weights[rows]) for rows in groups]
    gaps = [vectors[rows] - mean for rows, mean in zip(groups, means, strict=True)]
    scatters = [gap.T @ np.diag(shares[rows]) @ gap for rows, gap in zip(groups, gaps, strict=True)]
    n, freedom = len(codes), len(codes) - 3
    pooled = sum(scatters) * n / freedom
    level = np.trace(pooled) / min(n_entries, freedom)
    expected = np.empty((len(new), 3))
    for k, rows in enumerate(groups):
        share, count = shares[rows].sum(), len(rows)
        S = (1 - pool) * scatters[k] / share * count / max(count - 1, 1) + pool * pooled
        S = (1 - shrink) * S + shrink * level * np.eye(n_entries)
        density = multivariate_normal(means[k], S)
        expected[:, k] = np.log(share) + density.logpdf(new)
    scores = RDA(vectors, codes, weights).learn(pool, shrink).decide(new)
    np.testing.assert_allclose(scores - scores[:, :1], expected - expected[:, :1], rtol=1e-8)


@pytest.mark.parametrize(
    ("n_entries", "counts"), [(60, (6, 9, 5)), (60, (3, 17, 1)), (4, (3, 17, 1))]
)
def test_rda_on_a_device_takes_classes_together(n_entries, counts):
    """Rows of zeros make them as large as each other; the model does not have these."""
    vectors, codes, new = make(n_entries, counts)
    weights = np.linspace(1, 2, len(codes))
    right = RDA(vectors, codes, weights).learn(pool=0.5, shrink=0.1)
    there = RDA(DeviceArray.send(vectors), codes, weights)
    found = there.learn(pool=0.5, shrink=0.1).compact()
    assert len(found.factors) == len(right.factors)
    np.testing.assert_array_equal(found.starts, right.starts)
    np.testing.assert_allclose(found.decide(new), right.decide(new), rtol=1e-9)


def test_rda_without_pooling_is_the_regularised_qda_of_scikit_learn():
    vectors, codes, new = make(4, (12, 12, 12))
    means = np.stack([vectors[codes == k].mean(axis=0) for k in range(3)])
    squares = ((vectors - means[codes]) ** 2).sum()
    plain = QuadraticDiscriminantAnalysis(store_covariance=True).fit(vectors, codes)
    divisor = squares / sum(np.trace(S) for S in plain.covariance_)  # 11 or 12, by its version
    # (1 - r) s^2 S + r I with their covariances is s^2 times (1 - g) S + g mu I with ours.
    r = 1 - (1 - 0.2) * divisor / 11
    s = np.sqrt(r / (0.2 * squares / 33 / 4))
    theirs = QuadraticDiscriminantAnalysis(reg_param=r).fit(s * vectors, codes)
    found = softmax(
        RDA(vectors, codes, np.ones(36)).learn(pool=0.0, shrink=0.2).decide(new), axis=1
    )
    np.testing.assert_allclose(found, theirs.predict_proba(s * new), rtol=1e-8)


def test_fully_pooled_rda_is_linear():
    vectors, codes, new = make(60)
    model = RDA(vectors, codes, np.ones(len(codes))).learn(pool=1.0, shrink=0.1)
    scores = model.decide(np.stack([new, -new, 0 * new]).reshape(-1, 60))
    scores = (scores - scores[:, :1]).reshape(3, -1, 3)
    np.testing.assert_allclose((scores[0] + scores[1]) / 2, scores[2], atol=1e-9)


@pytest.mark.parametrize("fit", [fit_lda, RDA])
def test_classes_without_spread(fit):
    with pytest.raises(ValueError, match="no class has two different matrices"):
        fit(np.eye(3), np.arange(3), PRIORS)
