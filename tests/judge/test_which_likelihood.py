"""Which divergence without labels: the family that the matrices were drawn from."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy.stats import t

from divlearn.datasets import make_riemannian_gaussian_clusters, make_wishart_clusters
from divlearn.judge import NAMED, which_divergence
from divlearn.likelihood import fit_member
from divlearn.report import PlaneDisplay


@cache
def of_one_cluster(make):
    X, _ = make(1, 400, 3, random_state=2)
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
    other, loss, error = answer.runner_up
    scores = sorted((row.score for row in answer.named.values()), reverse=True)
    assert answer.named[other].score == scores[1]
    assert loss == pytest.approx(scores[0] - scores[1])
    doubt = "" if loss > 2 * error else ", no clear difference"
    lost = f"{other}, loses {loss:.2g} +- {error:.1g} in log-likelihood per matrix{doubt}. "
    assert lost in answer.summary()
    assert answer.summary().endswith(
        f"which does not pay for its two parameters (BIC {row.bic_difference:+.1f})."
    )
    burgs = {"burg", "reverse-burg"} - {name}  # Stein is not far from the origin
    assert all(answer.named[other].beaten for other in burgs)


def test_picture(tmp_path):
    pyplot = pytest.importorskip("matplotlib.pyplot", reason="matplotlib is not installed")
    answer = of_one_cluster(make_wishart_clusters)
    ax = PlaneDisplay(answer).plot().ax_
    lost = answer.named["burg"].difference
    assert f"Burg  {-lost:.3f}" in [text.get_text() for text in ax.texts]
    ax.figure.savefig(tmp_path / "plane.png")
    pyplot.close("all")


def test_likelihood_prefers_a_member_without_name():
    """Wishart matrices to the power 1/3: D^(0, 1) of X^3 is 9 D^(0, 3) of X."""
    X, _ = make_wishart_clusters(1, 800, 2, condition=1, random_state=0)
    values, vectors = np.linalg.eigh(X)
    X = (vectors * values[:, None] ** (1 / 3)) @ vectors.mT
    answer = which_divergence(X, alphas=[0, 1], betas=[0, 1])
    assert answer.best[1] > 1.5
    assert answer.named[answer.best_named].beaten
    assert answer.summary().startswith("Use (")
    top = answer.named[answer.best_named]
    unsure = {answer.best_named: replace(top, standard_error=top.difference)}
    assert (
        replace(answer, named=unsure)
        .summary()
        .endswith(
            "which a t-test does not confirm, though BIC prefers it "
            f"(BIC {top.bic_difference:+.1f})."
        )
    )


@pytest.mark.parametrize("seed", [1, 6, 7])
def test_the_runner_up_is_another_one(seed):
    """Two matrices are as likely in "burg" as in "reverse-burg", up to rounding."""
    X, _ = make_wishart_clusters(1, 2, 2, random_state=seed)
    answer = which_divergence(X, alphas=[0, 1], betas=[0, 1])
    assert answer.named["burg"].score == pytest.approx(answer.named["reverse-burg"].score)
    assert (answer.best_named, answer.runner_up[0]) == ("burg", "reverse-burg")


@pytest.mark.parametrize(("count", "seed"), [(2, 8), (3, 0)])
def test_few_matrices_do_not_prefer_a_member_without_name(count, seed):
    X, _ = make_wishart_clusters(1, count, 4, random_state=seed)
    answer = which_divergence(X, alphas=[0], betas=[1])
    row = answer.named["burg"]
    assert row.bic_difference > 0  # BIC and two standard errors prefer it
    assert row.difference > 2 * row.standard_error
    assert answer.summary().startswith("Use burg: ")
    assert t.cdf(row.margin, count - 2) == pytest.approx(0.975) or count == 2


def test_the_default_grid_without_labels():
    X, _ = make_wishart_clusters(1, 12, 2, random_state=0)
    answer = which_divergence(X)
    assert answer.map.shape == (9, 9)
    for row, column in ((0, 0), (0, 4), (3, 7), (8, 1)):
        exact = fit_member(X, row / 4, column / 4).log_likelihood
        assert answer.map[row, column] == pytest.approx(exact, abs=1e-7)
    assert answer.table()[0]["name"] == "learned"
    assert {row["name"] for row in answer.table()} == {"learned", *NAMED}


@pytest.mark.parametrize("size", [1e150, 1e300])
def test_matrices_that_differ_too_much_in_scale(size):
    X, _ = make_wishart_clusters(1, 5, 4, random_state=0)
    X *= np.where(np.arange(5) % 2, size, 1 / size)[:, None, None]
    message = r"differ too much in scale.*divide each by its trace$"
    with pytest.raises(ValueError, match=message):
        which_divergence(X)
