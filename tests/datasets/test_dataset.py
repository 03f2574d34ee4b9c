"""The one type of data set: matrices on demand, splits, duplicates, descriptions."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import wishart
from sklearn.base import BaseEstimator, TransformerMixin

from divlearn.datasets.dataset import Dataset
from divlearn.descriptors.series import GaussianEmbedding

CALLS = []


class Counting(TransformerMixin, BaseEstimator):
    """Covariances of series, counting how often they are computed."""

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        CALLS.append(len(X))
        return np.stack([np.cov(series) for series in X])


@pytest.fixture
def stored() -> Dataset:
    labels = np.repeat(["a", "b", "c"], [40, 20, 10])
    matrices = wishart(np.random.default_rng(0), 70, 4)
    groups = np.arange(70) // 2
    return Dataset("some", labels, "a book", "free", stored=matrices, groups=groups)


def described(n: int = 6, **options) -> Dataset:
    series = list(np.random.default_rng(0).standard_normal((n, 3, 20)))
    labels = np.arange(n) % 2
    return Dataset(
        "series", labels, "a book", "free", series=series, descriptor=Counting(), **options
    )


# --- matrices -------------------------------------------------------------------------------------


def test_stored_matrices_are_checked(stored):
    np.testing.assert_array_equal(stored.matrices, stored.stored)
    stored = Dataset("bad", np.arange(2), "", "", stored=np.stack([np.eye(2), -np.eye(2)]))
    with pytest.raises(ValueError, match=r"bad matrices\[1\]"):
        _ = stored.matrices


def test_matrices_are_computed_once_and_when_asked_for():
    CALLS.clear()
    dataset = described()
    assert repr(dataset)
    assert dataset.classes.tolist() == [0, 1]
    assert len(dataset.splits(n=1, train=0.5)) == 1
    assert CALLS == []
    np.testing.assert_allclose(dataset.matrices[2], np.cov(dataset.series[2]))
    assert dataset.matrices is dataset.matrices
    assert CALLS == [6]


def test_the_descriptor_is_cloned():
    dataset = described()
    dataset.descriptor = GaussianEmbedding()
    assert dataset.matrices.shape == (6, 4, 4)
    assert not hasattr(dataset.descriptor, "n_features_in_")


def test_several_matrices_per_sample_are_laid_out_one_sample_after_the_other():
    class Twice(Counting):
        def transform(self, X):
            matrices = super().transform(X)
            return np.stack([matrices, 2 * matrices], axis=1)

    dataset = described()
    dataset.descriptor, dataset.labels = Twice(), np.repeat(dataset.labels, 2)
    np.testing.assert_allclose(dataset.matrices[5], 2 * dataset.matrices[4])
    np.testing.assert_allclose(dataset.matrices[4], np.cov(dataset.series[2]))


def test_what_cannot_be_a_data_set():
    with pytest.raises(ValueError, match="neither stored matrices nor samples"):
        _ = Dataset("empty", np.arange(2), "", "").matrices
    dataset = described()
    dataset.labels = np.arange(3)
    with pytest.raises(ValueError, match="3 labels for 6 matrices; pass as many"):
        _ = dataset.matrices
    with pytest.raises(ValueError, match="3 labels for 1 matrix; pass as many"):
        _ = Dataset("few", np.arange(3), "", "", stored=np.eye(2)[None]).matrices
    with pytest.raises(ValueError, match=r"labels have shape \(0,\)"):
        Dataset("none", np.arange(0), "", "")
    with pytest.raises(ValueError, match=r"labels have shape \(1, 2\)"):
        Dataset("wide", np.ones((1, 2)), "", "")
    with pytest.raises(ValueError, match=r"groups have shape \(3,\), must have \(2,\), one"):
        Dataset("groups", np.arange(2), "", "", groups=np.arange(3))


def test_groups_without_labels():
    matrices = np.stack([np.eye(2)] * 2)
    assert Dataset("x", None, "", "", stored=matrices, groups=[1, 2]).groups.tolist() == [1, 2]
    with pytest.raises(ValueError, match=r"groups have shape \(3,\), must have \(2,\), one"):
        Dataset("x", None, "", "", stored=matrices, groups=np.arange(3))
    dataset = described(groups=np.arange(6))
    dataset.labels, dataset.groups = None, np.arange(5)
    with pytest.raises(ValueError, match="5 groups for 6 matrices; pass as many"):
        _ = dataset.matrices
    with pytest.raises(ValueError, match=r"groups have shape \(2, 1\), must have \(n_matrices,\)"):
        Dataset("x", None, "", "", series=[], groups=np.ones((2, 1)))


def test_labels_may_be_a_list():
    dataset = Dataset("x", ["a", "b"], "", "", stored=np.stack([np.eye(2)] * 2))
    assert dataset.labels.tolist() == ["a", "b"]
    with pytest.raises(ValueError, match=r"labels have shape \(\), must be \(n_matrices,\)"):
        Dataset("x", {"a", "b"}, "", "")


# --- splits ---------------------------------------------------------------------------------------


def test_random_splits_are_stratified_disjoint_complete_and_sorted(stored):
    splits = stored.splits()
    assert len(splits) == 5
    for train, test in splits:
        assert np.bincount(np.unique(stored.labels[train], return_inverse=True)[1]).tolist() == [
            32,
            16,
            8,
        ]
        assert sorted([*train, *test]) == list(range(70))
        assert (np.diff(train) > 0).all()
        assert (np.diff(test) > 0).all()
    assert len({tuple(train) for train, _ in splits}) == 5


def test_random_splits_follow_the_rule_and_the_arguments(stored):
    stored.n_splits, stored.train_share = 2, 0.5
    assert [len(train) for train, _ in stored.splits()] == [35, 35]
    assert [len(train) for train, _ in stored.splits(train=0.9)] == [63, 63]
    assert [len(train) for train, _ in stored.splits(n=np.int64(3))] == [35, 35, 35]


def test_random_splits_are_seeded(stored):
    def first(random_state):
        return stored.splits(1, random_state=random_state)[0][0].tolist()

    assert first(3) == first(3) != first(4)
    assert first(0) == stored.splits()[0][0].tolist()


def test_official_splits_come_first(stored):
    official = ((np.arange(30), np.arange(30, 70)),)
    stored.official_splits = official
    train, test = stored.splits()[0]
    assert (train.tolist(), test.tolist()) == (list(range(30)), list(range(30, 70)))
    train[:], test[:] = 0, 0
    assert stored.splits()[0][0].tolist() == list(range(30))
    assert stored.splits()[0][1].tolist() == list(range(30, 70))
    assert len(stored.splits(n=2)) == 2
    assert len(stored.splits(train=0.5)) == 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": 0}, "n=0 must be >= 1"),
        ({"train": 0.0}, "train=0.0 must be a number > 0 and < 1"),
        ({"train": 1}, "train=1 must be a number > 0 and < 1"),
        ({"train": "half"}, "train='half' must be"),
        ({"train": float("nan")}, "train=nan must be"),
        ({"train": 0.01}, "train=0.01 is 0 of 70 matrices to train on, must leave >= 3, one for"),
        ({"train": 0.98}, "train=0.98 is 68 of 70 matrices to train on, must leave >= 3, one for"),
    ],
)
def test_splits_that_cannot_be(stored, options, message):
    with pytest.raises(ValueError, match=message):
        stored.splits(**options)


@pytest.mark.parametrize("n", [2.0, True])
def test_the_number_of_splits_is_an_integer(stored, n):
    with pytest.raises(TypeError, match=f"n={n} must be an integer >= 1, the number of splits"):
        stored.splits(n=n)


def test_a_class_of_one_cannot_be_split(stored):
    with pytest.raises(ValueError, match="least populated class"):
        Dataset("x", stored.labels[:61], "", "", stored=stored.matrices[:61]).splits()


# --- duplicates, descriptions ---------------------------------------------------------------------


def test_duplicates_of_samples():
    dataset = described(6)
    dataset.series[4] = dataset.series[1].copy()
    dataset.series[5] = np.asfortranarray(dataset.series[1])
    dataset.series[0], dataset.series[3] = np.zeros((3, 20)), np.zeros((3, 20), dtype=np.int64)
    assert dataset.duplicates() == [(1, 4, 5)]


def test_duplicates_of_pairs_of_streams_and_of_matrices(stored):
    dataset = described(3)
    short = np.ones((3, 2))
    dataset.series = [(short, short), (short, short[:, :1]), (short.copy(), short.copy())]
    assert dataset.duplicates() == [(0, 2)]
    stored.stored[[7, 9]] = stored.stored[3]
    assert stored.duplicates() == [(3, 7, 9)]


def test_summary(stored):
    stored.notes = ("Beware.",)
    assert stored.summary().splitlines() == [
        "some: 70 SPD matrices, 4 x 4; 3 classes of 10 to 40; 5 random splits.",
        "Beware.",
        "Cite: a book",
        "Terms: free",
    ]
    official = described(official_splits=((np.arange(3), np.arange(3, 6)),))
    assert "3 x 3; 2 classes of 3; 1 official split." in official.summary()


def test_repr_without_labels_computes_nothing(stored):
    CALLS.clear()
    dataset = described()
    dataset.labels = None
    assert repr(dataset) == "<Dataset series: 6 series without labels>"
    assert CALLS == []
    images = Dataset("photographs", None, "", "", images=np.zeros((3, 4, 4)))
    assert repr(images) == "<Dataset photographs: 3 images without labels>"
    stored.labels = None
    assert repr(stored) == "<Dataset some: 70 matrices without labels>"
    assert repr(Dataset("bare", None, "", "")) == "<Dataset bare: 0 matrices without labels>"
