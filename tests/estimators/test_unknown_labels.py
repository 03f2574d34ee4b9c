"""Labels and groups that are missing, or of which some are text: refused with a sentence."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from divlearn import DivergenceKernelClassifier, IDDLClassifier, SPDClassifier, which_divergence
from divlearn.baselines import LEML, LogEuclideanSVM
from divlearn.datasets import Dataset, make_wishart_clusters
from divlearn.iddl import Recipe
from divlearn.judge import evaluate, examine, plane_map
from divlearn.nearest import DivergenceKNN, DivergenceMDM
from divlearn.sharded import open_shards
from divlearn.transfer import Recenter

X, CODES = make_wishart_clusters(2, 4, 2, random_state=0)
LABELLED = {
    "examine": examine,
    "which": which_divergence,
    "evaluate": evaluate,
    "plane_map": plane_map,
    "Dataset": lambda X, y: Dataset("mine", y, "", "", stored=X),
    **{
        kind.__name__: lambda X, y, kind=kind: kind().fit(X, y)
        for kind in (
            SPDClassifier,
            IDDLClassifier,
            DivergenceKernelClassifier,
            DivergenceKNN,
            DivergenceMDM,
            LogEuclideanSVM,
            LEML,
        )
    },
}


@pytest.mark.parametrize("name", LABELLED)
def test_labels(name):
    y = np.array(["bark", None], dtype=object)[CODES]
    first = int(np.flatnonzero(CODES)[0])
    with pytest.raises(ValueError, match=rf"\[{first}\] is None, must be a number or text; drop"):
        LABELLED[name](X, y)
    y = np.array(["bark", 1], dtype=object)[CODES]
    with pytest.raises(ValueError, match="is text for some samples only; convert all entries"):
        LABELLED[name](X, y)


@pytest.mark.parametrize("name", LABELLED)
@pytest.mark.parametrize(
    "y", [np.array([0.0, np.nan]), np.array(["2026-01-01", "NaT"], "M8[D]")], ids=["NaN", "NaT"]
)
def test_missing_numbers_and_days(name, y):
    """A day that is missing was a class of its own."""
    first, missing = int(np.flatnonzero(CODES)[0]), str(y[1])
    with pytest.raises(
        ValueError, match=rf"\[{first}\] is {missing}, must be a number or text; drop"
    ):
        LABELLED[name](X, y[CODES])


def test_labels_on_shards():
    y = np.array(["bark", None], dtype=object)[CODES]
    with pytest.raises(ValueError, match=r"shard 0: y\[\d\] is None, must be a number or text"):
        IDDLClassifier(recipe=Recipe(loss="ridge", penalty=1e-2), cv=None).fit(
            open_shards(X, y, block_size=6), None
        )


def test_labels_of_recentred_matrices():
    y = np.array([None, "bark"], dtype=object)[CODES]
    with pytest.raises(ValueError, match=r"y\[1\] is None, must be a number or text"):
        Recenter().fit(X, y, np.arange(len(X)) % 2)


def test_what_is_missing_among_text_is_named():
    """Made a string, as for text and numbers, it would be a class of its own."""
    y = np.array(["bark", np.nan], dtype=object)[CODES]
    first = int(np.flatnonzero(CODES)[0])
    with pytest.raises(ValueError, match=rf"y\[{first}\] is nan, must be a number or text; drop"):
        DivergenceMDM().fit(X, y)
    with pytest.raises(ValueError, match=rf"groups\[{first}\] is nan, must be a number or text"):
        which_divergence(X, CODES, groups=y)


def test_groups():
    groups = np.array([None, *"abcdefg"], dtype=object)
    with pytest.raises(ValueError, match=r"groups\[0\] is None, must be a number or text"):
        which_divergence(X, CODES, groups=groups)
    with pytest.raises(ValueError, match=r"groups\[0\] is None, must be a number or text"):
        evaluate(X, CODES, groups=groups)


def test_objects_that_are_text_are_labels():
    y = np.array([np.str_("bark"), "moss"], dtype=object)[CODES]
    assert examine(X, y).classes == {"bark": 4, "moss": 4}


@pytest.mark.parametrize("kind", [DivergenceMDM, partial(IDDLClassifier, 2, max_iter=0)])
def test_nullable_columns_of_pandas_are_what_they_hold(kind):
    """Large numbers, such as hashes, would be one class if they were made floats."""
    pandas = pytest.importorskip("pandas")
    big = 2**60 + CODES
    index = np.random.default_rng(0).permutation(len(X))  # rows count, not their names
    for values, dtype in ((big, "Int64"), (CODES > 0, "boolean"), (CODES > 0, "category")):
        model = kind().fit(X, pandas.Series(values, index=index, dtype=dtype))
        assert model.classes_.tolist() == np.unique(values).tolist()
        assert model.classes_.dtype == values.dtype
        np.testing.assert_array_equal(model.predict(X), kind().fit(X, values).predict(X))
    missing = pandas.Series(["bark", None], dtype="string")[CODES]
    with pytest.raises(ValueError, match=r"y\[\d\] is <NA>, must be a number or text; drop"):
        kind().fit(X, missing)


def test_groups_of_nullable_numbers_stay_apart():
    pandas = pytest.importorskip("pandas")
    groups = 2**60 + np.arange(len(X)) // 2
    model = Recenter().fit(X, groups=pandas.Series(groups, dtype="Int64"))
    np.testing.assert_array_equal(model.groups_, np.unique(groups))
