"""What `examine` finds, against matrices made to have it."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import wishart
from hypothesis import given
from hypothesis import strategies as st

from divlearn import DivergenceMDM, IDDLTransformer, check_spd
from divlearn.judge import examine


@pytest.fixture
def X():
    return wishart(np.random.default_rng(0), 12, 3)


def kinds(diagnosis):
    return {finding.kind: finding.indices.tolist() for finding in diagnosis.findings}


def test_nothing_is_wrong(X):
    found = examine(X, np.arange(12) % 2)
    assert found.healthy
    assert not found.findings
    np.testing.assert_allclose(found.condition, np.linalg.cond(X), rtol=1e-9)
    assert found.classes == {"0": 6, "1": 6}
    assert "12 matrices of size 3, 2 classes: no problems found" in found.summary()


def test_everything_is_wrong(X):
    X[1, 0, 2] = X[1, 2, 0] = np.nan
    X[3, 0, 1] += 1
    X[5] = np.diag([1.0, 2.0, -1.0])
    X[6] = np.ones((3, 3))
    X[7] = np.diag([1.0, 1.0, 0.0])
    X[8] = np.diag([1.0, 1.0, 1e-12])
    X[9] = X[0]
    X[11] = X[10]
    labels = np.array(list("aaabbbabcbdd"))
    found = examine(X, labels)
    assert kinds(found) == {
        "not finite": [1],
        "asymmetric": [3],
        "indefinite": [5],
        "rank-deficient": [6, 7],
        "ill-conditioned": [8],
        "copies under different labels": [0, 9],
        "copies": [10, 11],
        "classes of one": [8],
    }
    assert not found.healthy
    assert [finding.severe for finding in found.findings] == 4 * [True] + 4 * [False]
    assert "not usable" in found.summary()
    assert np.isnan(found.condition[[1, 3, 5, 6, 7]]).all()
    texts = {finding.kind: finding.text for finding in found.findings}
    assert texts["rank-deficient"].startswith("rank 1 to 2 of 3")
    assert all(finding.advice for finding in found.findings)


@given(st.integers(0, 5), st.booleans())
def test_what_is_healthy_passes_the_check(index, spoil):
    """The same verdict as that of `check_spd`, which all estimators ask."""
    X = wishart(np.random.default_rng(1), 6, 3)
    if spoil:
        X[index] -= np.linalg.eigvalsh(X[index])[1] * np.eye(3)
    assert examine(X).healthy is not spoil
    if spoil:
        with pytest.raises(ValueError, match=rf"X\[{index}\]"):
            check_spd(X)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_an_average_reference_is_told_from_too_few_samples(dtype):
    rng = np.random.default_rng(0)
    recordings = rng.standard_normal((6, 8, 100)).astype(dtype)
    recordings -= recordings.mean(axis=1, keepdims=True)
    X = recordings @ recordings.mT
    (found,) = examine(X).findings
    assert found.kind == "rank-deficient"
    assert found.text.startswith("rank 7 of 8")
    assert "average reference" in found.advice
    assert "drop one channel" in found.advice
    X[2] = recordings[2, :, :4] @ recordings[2, :, :4].T  # too few samples as well
    (found,) = examine(X).findings
    assert "take more samples" in found.advice


@pytest.mark.parametrize("unit", [1e-9, 1e9])
def test_units_and_classes(X, unit):
    """The odd matrix is named, not all others."""
    X[2] *= unit
    found = examine(X, np.zeros(12))
    assert kinds(found) == {"different units": [2], "one class": list(range(12))}
    assert found.healthy
    assert "usable, but look at: different units, one class" in found.summary()


def test_eigenvalues_below_rounding_are_found():
    """Definite up to the scales of its variables, but the smallest eigenvalue is rounded away."""
    scales = 10.0 ** np.linspace(-70, 70, 4)
    X = np.multiply.outer(scales, scales) * (0.1 + 0.9 * np.eye(4))
    found = examine([X, 2 * X])
    assert found.healthy
    assert kinds(found)["channels in different units"] == [0, 1]
    assert "usable, but look at: channels in different units" in found.summary()


def test_blocks_change_nothing(X, monkeypatch):
    X[7] = 1
    whole = kinds(examine(X))
    monkeypatch.setattr("divlearn.judge.doctor._BLOCK_ENTRIES", 20)
    assert kinds(examine(X)) == whole == {"rank-deficient": [7]}


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (np.zeros((2, 3)), None, r"shape \(2, 3\)"),
        (np.zeros((2, 3, 4)), None, "must be real numbers of shape"),
        (np.zeros((0, 3, 3)), None, "must be real numbers of shape"),
        (np.array([[["a"]]]), None, "must be real numbers"),
        (np.ones((2, 1, 1)), [1], r"y has shape \(1,\), must have \(2,\)"),
    ],
)
def test_errors(X, y, message):
    with pytest.raises(ValueError, match=message):
        examine(X, y)


def test_numbers_are_no_classes():
    """`fit` of a classifier refuses them, as scikit-learn does."""
    labels = np.linspace(0, 1, 12)
    found = examine(np.stack([(1 + i) * np.eye(3) for i in range(12)]), labels)
    assert kinds(found)["numbers"] == list(range(1, 11))
    assert "classes of one" not in kinds(found)
    assert not found.classes


@pytest.mark.parametrize(
    ("labels", "are_numbers"),
    [
        (np.array([0.5, 1.0, 2.0, 1.0, 2.0]), True),
        (np.array([0.5, 1.0, 2.0, 1.0, 2.0], dtype=np.float32), True),
        (np.array([1.0, 2.0, 1e15, 1e15, 2.0]), False),
        (np.array([1, 2, 2, 2, 1]), False),
        (np.array(["0.5", "1", "1", "0.5", "1"]), False),
    ],
    ids=["fractions", "single", "large", "whole", "text"],
)
def test_everyone_tells_numbers_from_classes_alike(labels, are_numbers):
    X = np.stack([np.diag([1.0 + i, 1.0]) for i in range(len(labels))])
    assert ("numbers" in kinds(examine(X, labels))) == are_numbers
    learner = IDDLTransformer(2, max_iter=0, rank="full").fit(X, labels)
    assert hasattr(learner.models_[0], "head")
    if are_numbers:
        with pytest.raises(ValueError, match=r"continuous\. y holds 0\.5"):
            DivergenceMDM().fit(X, labels)
    else:
        DivergenceMDM().fit(X, labels)


def test_channels_in_volts_beside_channels_in_microvolts(X):
    """Shrinkage would replace the channels in volts by noise."""
    units = np.diag([1e-6, 1e-6, 1.0])
    found = examine(units @ X @ units)
    assert kinds(found) == {"channels in different units": list(range(12))}
    assert "convert all channels to the same unit" in found.findings[0].advice
    flat = X @ np.diag([1, 1, 0]) @ X + 1e-11 * np.eye(3)  # whatever the units
    assert list(kinds(examine(flat))) == ["ill-conditioned"]
    both = np.concatenate([flat[:2], units @ X[2:] @ units])
    assert kinds(examine(both))["ill-conditioned"] == [0, 1]
    assert kinds(examine(both))["channels in different units"] == list(range(2, 12))
