"""A fit that is killed after any stage resumes, and ends with the same bits."""

from __future__ import annotations

import numpy as np
import pytest
from resuming import Killed, assert_resumes, comparable, same_parameters, writes
from same import assert_same

from divlearn import (
    ABKMeans,
    ABMixture,
    IDDLClassifier,
    IDDLRegressor,
    IDDLTransformer,
    SPDClassifier,
    resumable,
)
from divlearn.datasets import make_wishart_clusters
from divlearn.iddl import Recipe

SMALL = {"n_atoms": 2, "cv": 2, "max_iter": 1, "random_state": 0}
SEEDS = 2  # every IDDL draws them first
# Models, and their stages: starts, numbers of components, folds, penalties and folds, members.
FITS = {
    "k-means": (ABKMeans(3, n_init=3, tol=0, random_state=0), 3),
    "k-means, learned": (ABKMeans(3, "learn", n_init=2, random_state=0), 2),
    "mixture": (ABMixture([1, 2], "wishart", n_init=2, random_state=0), 2 * (2 + 1)),
    "mixture that moves": (ABMixture(4, "wishart", init="random", random_state=5), 1 + 1),
    "IDDL, two losses and ranks": (IDDLClassifier(**SMALL), SEEDS + 2 * 2),
    "IDDL, grid": (
        IDDLClassifier(**SMALL, recipe=Recipe(loss="ridge"), divergence="N"),
        SEEDS + 1 + 2,
    ),
    "IDDL, minibatches": (
        IDDLClassifier(**SMALL, recipe=Recipe(loss="ridge", solver="stochastic")),
        SEEDS + 2,
    ),
    "IDDL, blocks": (IDDLClassifier(**SMALL, recipe=Recipe(loss="ridge", solver="bcd")), SEEDS + 2),
    "IDDL, penalties": (
        IDDLClassifier(**SMALL | {"cv": None}, recipe=Recipe(loss="ridge", penalty="cv")),
        SEEDS + 2 * 4,
    ),
    "transformer": (IDDLTransformer(**SMALL, recipe=Recipe(loss="ridge")), SEEDS + 2),
    "committee": (
        SPDClassifier(("iddl", "tangent lda"), cv=2, random_state=0),
        SEEDS + 1 + (1 + 2 * 2 + 1),
    ),
}


@pytest.fixture(scope="module")
def data():
    return make_wishart_clusters(3, 6, 2, separation=3, random_state=0)


@pytest.mark.usefixtures("short_fits")
@pytest.mark.parametrize("name", FITS)
def test_killed_after_every_stage(data, tmp_path, monkeypatch, name):
    model, n_stages = FITS[name]
    monkeypatch.setattr("divlearn.iddl.predictor._RANKS", (1,))
    assert_resumes(model, tmp_path / "fit", *data, n_stages=n_stages)


def test_regressor(data, tmp_path):
    X, _ = data
    y = np.linalg.slogdet(X)[1]
    assert_resumes(IDDLRegressor(**SMALL), tmp_path / "fit", X, y, n_stages=SEEDS + 2 * 2)


@pytest.mark.parametrize("random_state", [None, np.random.RandomState(3)])
@pytest.mark.parametrize(
    "model",
    [
        ABKMeans(3, init="random", n_init=3),
        IDDLClassifier(**SMALL, recipe=Recipe(loss="ridge", init="samples")),
    ],
    ids=lambda model: type(model).__name__,
)
def test_nothing_is_drawn_twice(data, tmp_path, model, random_state):
    """Whatever the generator does after the kill, the fit ends as it had begun."""
    model.set_params(random_state=random_state)
    generator = random_state or np.random.mtrand._rand
    generator.seed(0)
    whole = comparable(same_parameters(model).fit(*data))
    generator.seed(0)
    path = tmp_path / "fit"
    with writes(2), pytest.raises(Killed), resumable(path):
        same_parameters(model).fit(*data)
    generator.seed(1)
    with resumable(path):
        assert_same(comparable(same_parameters(model).fit(*data)), whole)


def test_shards(data, tmp_path):
    files = [tmp_path / f"{start:02}.npz" for start in (0, 6, 12)]
    for number, file in enumerate(files):
        np.savez(file, X=data[0][6 * number : 6 * number + 6])
    (tmp_path / "work").mkdir()
    path, model = tmp_path / "work" / "fit", FITS["k-means"][0]
    assert_resumes(model, path, files, n_stages=3)
    with writes(2), pytest.raises(Killed), resumable(path):
        same_parameters(model).fit(files)
    np.savez(files[1], X=2 * data[0][6:12])
    other = pytest.raises(ValueError, match="belongs to another fit: X must be")
    with other, resumable(path):
        same_parameters(model).fit(files)
