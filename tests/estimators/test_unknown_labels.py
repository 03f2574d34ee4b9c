"""Labels and groups that are None, or of which some are text: refused with a sentence."""

from __future__ import annotations

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


def test_groups():
    groups = np.array([None, *"abcdefg"], dtype=object)
    with pytest.raises(ValueError, match=r"groups\[0\] is None, must be a number or text"):
        which_divergence(X, CODES, groups=groups)
    with pytest.raises(ValueError, match=r"groups\[0\] is None, must be a number or text"):
        evaluate(X, CODES, groups=groups)


def test_objects_that_are_text_are_labels():
    y = np.array([np.str_("bark"), "moss"], dtype=object)[CODES]
    assert examine(X, y).classes == {"bark": 4, "moss": 4}
