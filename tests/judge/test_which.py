"""Which divergence: honest scores, plain words, and answers where the answer is known."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest

from divlearn.baselines import DivergenceMDM, plane
from divlearn.datasets import (
    make_riemannian_gaussian_clusters,
    make_wishart_clusters,
)
from divlearn.divergence import abld
from divlearn.fitting.folds import make_folds
from divlearn.judge import (
    NAMED,
    NamedScore,
    PlaneMap,
    WhichDivergence,
    plane_map,
    which_divergence,
)
from divlearn.likelihood import fit_member
from divlearn.report import plot_plane

ALPHAS, BETAS = [0.0, 0.5, 1.5], [0.0, 1.0]


def overlapping(n: int = 60, d: int = 3, seed: int = 0):
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % 3
    factors = rng.standard_normal((n, d, d + 1)) * (1 + 0.6 * labels[:, None, None])
    return factors @ factors.mT, labels


def fold_of(y, groups, cv):
    """The fold of every matrix."""
    folds = np.empty(len(y), dtype=int)
    for fold, (_, held) in enumerate(make_folds(cv, len(y), y, groups, random_state=0)):
        folds[held] = fold
    return folds


def test_scores_of_a_plain_loop():
    """Nested cross-validation as one would write it, one matrix after the other."""
    X, y = overlapping(30)
    answer = which_divergence(X, y, cv=3, alphas=ALPHAS, betas=BETAS, random_state=0)
    folds = fold_of(y, None, 3)
    chosen, right = [], []
    for fold in range(3):
        train, test = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        point = plane_map(X[train], y[train], ALPHAS, BETAS).best
        chosen.append(point)
        for i in test:
            nearest = train[abld(X[i], X[train], *point).argmin()]
            right.append(y[nearest] == y[i])
    assert answer.chosen == tuple(chosen)
    assert answer.score == np.mean(right)
    assert answer.best == plane_map(X, y, ALPHAS, BETAS).best
    for name, row in answer.named.items():
        table = abld(X[:, None], X, NAMED[name].alpha, NAMED[name].beta)
        table[folds[:, None] == folds] = np.inf
        hits = y[table.argmin(axis=1)] == y
        assert row.score == np.mean(hits)
        assert row.difference == pytest.approx(answer.score - row.score)
    assert answer.map[0, 0] == answer.named["airm"].score


def test_nearest_means_of_a_plain_loop():
    X, y = overlapping(60)
    answer = which_divergence(X, y, cv=3, alphas=ALPHAS, betas=BETAS, random_state=0)
    folds, right = fold_of(y, None, 3), {name: [] for name in NAMED}
    parts = [(np.flatnonzero(folds != k), np.flatnonzero(folds == k)) for k in range(3)]
    for name, (train, test) in product(NAMED, parts):
        means = DivergenceMDM(name if "burg" in name else "airm").fit(X[train], y[train]).means_
        right[name].extend(NAMED[name].pairwise(X[test], means).argmin(axis=1) == y[test])
    for name, row in answer.named.items():  # AIRM means are approximate
        close = 0 if "burg" in name else 1.5 / 60
        assert row.mean_score == pytest.approx(np.mean(right[name]), abs=close)
    chosen = DivergenceMDM("choose", cv=parts).fit(X, y)
    assert answer.mean_score == np.mean(chosen.oof_proba_.argmax(axis=1) == y)
    assert answer.mean_divergence == chosen.divergence_.name
    assert (
        f"{answer.mean_score:.1%}, of the nearest neighbour {answer.score:.1%}" in answer.summary()
    )
    assert {"score", "mean_score"} <= answer.table()[0].keys()


def test_means_are_preferred_where_neighbours_are_noisy():
    """Matrices of few samples: the likelihood is that of the Burg divergence to the mean."""
    X, y = make_wishart_clusters(4, 60, 6, dof=7, separation=3, random_state=0)
    answer = which_divergence(X, y, alphas=[0, 1], betas=[0, 1], random_state=0)
    assert answer.mean_score > answer.score
    assert answer.p_mean < 0.05
    assert answer.mean_divergence == "burg"
    assert f"nearest neighbour {answer.score:.1%}: use the mean." in answer.summary()


def test_groups_of_a_plain_loop():
    """Neighbours of the same group are left out of judgements and of choices."""
    images, classes = overlapping(18)
    X, y = np.repeat(images, 2, axis=0), np.repeat(classes, 2)
    X[::2] *= 1.01  # near copies
    groups = np.repeat([f"image {number}" for number in range(18)], 2)
    options = {"cv": 3, "alphas": ALPHAS, "betas": BETAS, "random_state": 0}
    answer = which_divergence(X, y, groups=groups, **options)
    folds = fold_of(y, groups, 3)
    for group in np.unique(groups):
        assert len(set(folds[groups == group])) == 1
    grid = [(alpha, beta) for alpha in ALPHAS for beta in BETAS]
    tables = {point: abld(X[:, None], X, *point) for point in [*grid, (0.0, 1.0)]}

    def right(point, i, references):
        others = references[groups[references] != groups[i]]
        return y[others[tables[point][i, others].argmin()]] == y[i]

    def best(rows):
        correct = np.array([[right(point, i, rows) for i in rows] for point in grid])
        return PlaneMap(np.array(ALPHAS), np.array(BETAS), correct.reshape(3, 2, -1)).best

    trains = [np.flatnonzero(folds != fold) for fold in range(3)]
    assert answer.best == best(np.arange(36))
    assert answer.chosen == tuple(best(train) for train in trains)
    points = [answer.chosen[fold] for fold in folds]
    assert answer.score == np.mean([right(points[i], i, trains[folds[i]]) for i in range(36)])
    burg = [right((0.0, 1.0), i, trains[folds[i]]) for i in range(36)]
    assert answer.named["burg"].score == np.mean(burg)


@pytest.mark.parametrize(("rows", "pairs"), [(1, 1), (7, 100)])
def test_blocks_do_not_show(monkeypatch, rows, pairs):
    X, y = overlapping(18)
    options = {"cv": 3, "alphas": ALPHAS, "betas": BETAS, "random_state": 0}
    expected = which_divergence(X, y, **options)
    monkeypatch.setattr(plane, "_ROWS", rows)
    monkeypatch.setattr(plane, "_PAIRS", pairs)
    blocked = which_divergence(X, y, **options)
    np.testing.assert_array_equal(blocked.map, expected.map)
    assert blocked.table() == expected.table()


def test_separated_classes_need_no_learning():
    X, y = make_wishart_clusters(3, 30, 3, separation=30, random_state=0)
    answer = which_divergence(X, y, random_state=0)
    assert answer.criterion == "accuracy"
    assert answer.map.shape == (17, 17)
    assert answer.score > 0.95
    assert answer.summary().startswith("Use any: all divergences of the grid")


def test_learning_is_recommended_where_it_helps():
    """One eigenvalue tells the classes apart; members without a name ignore the noisy others."""
    rng, y = np.random.default_rng(0), np.arange(300) % 2
    noise = 3 * rng.standard_t(1.5, (5, len(y))).clip(-9, 9)
    logs = np.column_stack([*noise, rng.normal(-0.9 * y, 0.12)])
    X = np.exp(logs)[:, :, None] * np.eye(6)
    answer = which_divergence(X, y, alphas=[0, 1, 4, 8], betas=[0, 1, 4, 8], random_state=0)
    assert answer.named[answer.best_named].beaten
    assert answer.summary().startswith(f"Use ({answer.best[0]:g}, {answer.best[1]:g})")
    assert max(answer.best) > 1
    assert answer.score <= answer.map.max()


def test_permuted_labels_mean_nothing():
    X, y = overlapping(90)
    shuffled = np.random.default_rng(3).permutation(y)
    answer = which_divergence(X, shuffled, random_state=0)
    assert answer.summary().startswith(
        "No divergence separates these classes significantly better than chance"
    )
    assert answer.score < 0.5
    assert answer.map.max() >= answer.score  # the map's maximum is not what is reported


@cache
def of_one_cluster(make):
    X, _ = make(1, 800, 3, random_state=2)
    grid = [0.0, 0.5, 1.0]
    return which_divergence(X, alphas=grid, betas=grid)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (make_wishart_clusters, "burg"),
        (make_riemannian_gaussian_clusters, "airm"),
    ],
)
def test_likelihood_names_the_family(make, name):
    grid, answer = [0.0, 0.5, 1.0], of_one_cluster(make)
    assert answer.criterion == "likelihood"
    assert answer.best_named == name
    assert answer.summary().startswith(f"Use {name}")
    assert answer.score >= answer.map.max() - 1e-9
    row = answer.named[name]
    assert row.score == pytest.approx(answer.map[grid.index(row.alpha), grid.index(row.beta)])
    assert not row.beaten
    burgs = {"burg", "reverse-burg"} - {name}  # Stein is not far from the origin
    assert all(answer.named[other].beaten for other in burgs)


def test_likelihood_prefers_a_member_without_name():
    """Wishart matrices to the power 1/3: D^(0, 1) of X^3 is 9 D^(0, 3) of X."""
    X, _ = make_wishart_clusters(1, 1500, 2, condition=1, random_state=0)
    values, vectors = np.linalg.eigh(X)
    X = (vectors * values[:, None] ** (1 / 3)) @ vectors.mT
    answer = which_divergence(X, alphas=[0, 1], betas=[0, 1])
    assert answer.best[1] > 1.5
    assert answer.named[answer.best_named].beaten
    assert answer.summary().startswith("Use (")


def test_the_default_grid_without_labels():
    X, _ = make_wishart_clusters(1, 12, 2, random_state=0)
    answer = which_divergence(X)
    assert answer.map.shape == (9, 9)
    for row, column in ((0, 0), (0, 4), (3, 7), (8, 1)):
        exact = fit_member(X, row / 4, column / 4).log_likelihood
        assert answer.map[row, column] == pytest.approx(exact, abs=1e-7)
    assert answer.table()[0]["name"] == "learned"
    assert {row["name"] for row in answer.table()} == {"learned", *NAMED}


def test_the_same_twice():
    X, y = overlapping()
    one, other = (which_divergence(X, y, random_state=7) for _ in range(2))
    assert one.table() == other.table()
    assert one.summary() == other.summary()
    np.testing.assert_array_equal(one.map, other.map)


@pytest.mark.parametrize("labels", [True, False])
def test_picture(tmp_path, labels):
    pyplot = pytest.importorskip("matplotlib.pyplot", reason="matplotlib is not installed")
    X, y = overlapping(30)
    answer = (
        which_divergence(X, y, cv=3, alphas=[0, 1], betas=[0, 1])
        if labels
        else of_one_cluster(make_wishart_clusters)
    )
    ax = plot_plane(answer)
    assert any("burg" in text.get_text().lower() for text in ax.texts)
    ax.figure.savefig(tmp_path / "plane.png")
    pyplot.close("all")


def test_words_of_every_verdict():
    row = NamedScore(0.0, 1.0, 0.8, 0.1, 0.02, 1e-4)
    grid = np.array([0.0, 1.0])
    answer = WhichDivergence(
        "accuracy", (1.0, 1.0), 0.9, {"burg": row}, grid, grid, np.full((2, 2), 0.8), 200,
        chosen=((1.0, 1.0), (1.0, 1.0)), chance=0.5, p_chance=1e-9,
    )  # fmt: skip
    assert answer.summary().startswith("Use (1, 1): the learned point beats burg")
    assert "chosen without each fold: (1, 1). The accuracy" in answer.summary()
    two = replace(answer, chosen=((1.0, 1.0), (0.5, 1.0)))
    assert "without each fold: (1, 1); (0.5, 1). The accuracy" in two.summary()
    even = replace(
        answer, score=0.8, named={"burg": replace(row, difference=0.0, standard_error=0, p_value=1)}
    )
    assert even.summary().startswith("Use any: all divergences of the grid have the accuracy 80.0%")
    tied = replace(row, difference=0.01, p_value=0.5)
    for names, verdict in (
        (("airm",), "Use airm (80.0%): the learned"),
        (("airm", "burg"), "Use airm or burg (80.0%): the learned"),
        (("airm", "stein", "burg"), "No difference found between airm, stein and burg (80.0%): "),
    ):
        some = replace(answer, named=dict.fromkeys(names, tied), map=np.eye(2))
        assert some.summary().startswith(verdict)
    means = replace(answer, mean_score=0.85, mean_divergence="stein", p_mean=0.2)
    assert means.summary().endswith(
        "The accuracy of the nearest mean, in stein, is 85.0%, of the nearest neighbour 90.0%: no "
        "significant difference."
    )
    assert replace(means, p_mean=0.01).summary().endswith("90.0%: use the neighbour.")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": np.zeros(30)}, "y holds the one class 0.0, must hold >= 2"),
        ({"y": np.arange(29) % 3}, "y has 29 rows, but X has 30 matrices"),
        ({"cv": 1}, "cv=1 must be >= 2"),
        ({"groups": np.arange(29)}, "groups has 29 entries, must have one for each of the 30"),
        ({"groups": np.arange(30) % 3}, "smallest class has 1 group, must have >= 2"),
        ({"groups": np.arange(30), "y": None}, "without labels.*leave out groups, or pass y"),
        ({"alphas": [-1, 0]}, "alphas starts at -1, must be >= 0"),
        ({"betas": [1, 0]}, "ascending"),
        ({"X": np.eye(2)[None], "y": None}, "n_matrices=1, must be >= 2"),
    ],
)
def test_errors(change, message):
    X, y = overlapping(30)
    with pytest.raises(ValueError, match=message):
        which_divergence(**({"X": X, "y": y, "cv": 3} | change))
