"""An engine returns NaN for one pair: a fit raises, or ends as if that were a step too long."""

from __future__ import annotations

import re

import numpy as np
import pytest
from failing_engine import PARTS, FailingEngine
from hostile_arrays import numbers

import divlearn
from divlearn import baselines
from divlearn.datasets import make_wishart_clusters
from divlearn.iddl import Recipe
from divlearn.likelihood import fit_likelihood, fit_member

pytestmark = pytest.mark.usefixtures("small_grids_everywhere")

X, Y = make_wishart_clusters(2, 8, 2, separation=2, random_state=0)
SEED = {"random_state": 0}
ONE = {"cv": None, "divergence": "learn", **SEED}


def fit(model):
    return vars(model.fit(X, Y))


FITS = {
    "mean_abld": lambda engine: vars(divlearn.mean_abld(X, 0.5, 1.5, engine=engine)),
    "mean_abld, closed": lambda engine: vars(divlearn.mean_abld(X, 0, 1, engine=engine)),
    "fit_likelihood": lambda engine: vars(fit_likelihood(X, engine=engine)),
    "fit_member": lambda engine: vars(fit_member(X, 0.5, 0.5, engine=engine)),
    "ABKMeans": lambda engine: fit(divlearn.ABKMeans(2, n_init=2, engine=engine, **SEED)),
    "ABKMeans, k-means++": lambda engine: fit(
        divlearn.ABKMeans(2, (3, 1), init="k-means++", n_init=1, engine=engine, **SEED)
    ),
    "ABKMeans, learn": lambda engine: fit(
        divlearn.ABKMeans(2, "learn", n_init=1, engine=engine, **SEED)
    ),
    "ABKMeans, likelihood": lambda engine: fit(
        divlearn.ABKMeans(2, "likelihood", n_init=1, max_iter=3, engine=engine, **SEED)
    ),
    "ABKMeans, paper": lambda engine: fit(
        divlearn.ABKMeans.paper(2).set_params(max_iter=3, engine=engine, **SEED)
    ),
    "ABMixture": lambda engine: fit(divlearn.ABMixture(1, max_iter=3, engine=engine, **SEED)),
    "ABMixture, wishart": lambda engine: fit(
        divlearn.ABMixture(3, "wishart", share="none", max_iter=3, engine=engine, **SEED)
    ),
    "Recenter": lambda engine: fit(divlearn.Recenter("stein", engine=engine)),
    "DivergenceMDM, choose": lambda engine: fit(
        divlearn.DivergenceMDM("choose", engine, cv=2, **SEED)
    ),
    "KernelSparseCoding": lambda engine: fit(
        baselines.KernelSparseCoding(
            2, kernel="stein", bandwidth=0.5, penalty=0.1, max_iter=2, engine=engine, **SEED
        )
    ),
    "IDDLClassifier": lambda engine: fit(
        divlearn.IDDLClassifier(2, rank="full", cv=2, max_iter=1, engine=engine, **SEED)
    ),
    "IDDLClassifier, V": lambda engine: fit(
        divlearn.IDDLClassifier(2, divergence="V", cv=2, max_iter=1, engine=engine, **SEED)
    ),
    **{
        f"IDDLClassifier, {solver}": lambda engine, solver=solver: fit(
            divlearn.IDDLClassifier(
                2,
                recipe=Recipe(loss="softmax", solver=solver, penalty=1e-2),
                max_iter=1,
                engine=engine,
                **ONE,
            )
        )
        for solver in ("joint", "bcd", "stochastic")
    },
}


def attempt(name, engine):
    """What was learned, or why nothing was."""
    try:
        return FITS[name](engine)
    except np.linalg.LinAlgError:
        raise
    except (FloatingPointError, ValueError) as error:
        return str(error)


def assert_sound(found):
    """No number is none but those that say so."""
    silent = ("oof_proba_", "history_")  # what no fold holds out; gradients of starts
    for name, value in found.items():
        for array in numbers(value if name not in silent else ()):
            assert np.isfinite(array).all(), name
    message = found.get("message_", found.get("message", ""))
    assert "nan" not in message.split(), message
    if "history_" in found and "objective" in found["history_"]:
        assert np.isfinite(found["history_"]["objective"]).all()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FITS)
def test_numbers_that_are_none_are_no_result(name):
    """From the first on, in the middle, from there on, or the last: parts and fits take turns."""
    sound = FailingEngine()
    FITS[name](sound)
    for place, part in enumerate(
        (part for part in PARTS if sound.asked[part]), [*FITS].index(name)
    ):
        last = sound.asked[part]
        times = [(1, False), (last // 2, True), (last // 2 + 1, False), (last, True)]
        first, once = times[place % 4]
        found = attempt(name, FailingEngine(part, first, once=once))
        if isinstance(found, str):
            assert re.search(r"\b(nan|inf)\b|rescale", found), found
        else:
            assert_sound(found)
