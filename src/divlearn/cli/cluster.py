"""``divlearn cluster``: clusters of matrices."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from divlearn.cli import options
from divlearn.cli.output import Output
from divlearn.text import counted

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

    from divlearn.arrays import Indices, Labels, RealArray
    from divlearn.datasets import Dataset

_MAX_CLUSTERS = 20  # if the number is chosen

Number = Annotated[
    int | None,
    typer.Option(
        "--clusters",
        "-k",
        help="Number of clusters; the one with the lowest BIC by default.",
        callback=options.between("-k/--clusters", 1),
    ),
]
DivergenceName = Annotated[
    str | None,
    typer.Option(
        help='Name, "alpha,beta" or "learn", for k-means and mixture; "likelihood" for k-means.'
    ),
]
Method = Annotated[str, typer.Option(help="k-means, mixture, karcher or log-euclidean.")]


def cluster(
    data: options.Data,
    n_clusters: Number = None,
    method: Method = "k-means",
    divergence: DivergenceName = None,
    output: options.ModelFile = None,
    matrices: options.MatricesKey = None,
    labels: options.LabelsKey = None,
    groups: options.Groups = None,
    regularize: options.Regularize = "raise",
    seed: options.Seed = 0,
    engine: options.EngineName = "auto",
    report: options.ReportFile = None,
    as_json: options.AsJson = False,
) -> None:
    """Find clusters of matrices, and say how well they agree with labels, or with themselves.

    Without -k, the number of clusters is that of the mixture with the lowest BIC, at most 20.
    Nothing is held out: with --groups, clusters are compared with the groups too.

    Example: divlearn cluster matrices.npz -k 15 --method mixture -o clusters.divlearn
    """
    from divlearn.cli.data import data_files, read_data
    from divlearn.models import save

    out = Output(
        as_json, report, reads=data_files(data, labels, groups), writes=[("--output", output, ())]
    )
    model = _make_model(method, divergence, seed, engine).set_params(regularize=regularize)
    purpose = "compare clusters with it"
    dataset = read_data(out, data, matrices, labels, groups, regularize, purpose)
    if n_clusters is not None and n_clusters > len(dataset.matrices):
        raise ValueError(
            f"-k/--clusters {n_clusters} must be <= {len(dataset.matrices)}, the number of "
            "matrices; lower it or pass more data"
        )
    bics, stability = _fit(out, model, dataset, n_clusters)
    if output is not None:
        save(model, output)
    with out.keeping(output):
        _show(out, model, dataset, bics, stability, output)


def _fit(
    out: Output, model: BaseEstimator, dataset: Dataset, n_clusters: int | None
) -> tuple[dict[int, float], float]:
    """Fit the model; return the BIC by number of clusters, and the stability without labels."""
    from divlearn.cluster import ABMixture
    from divlearn.cluster.agreement import measure_stability

    with out.working(f"Clustering {counted(len(dataset.matrices), 'matrices')}"):
        bics = _compute_bics(model, dataset.matrices) if n_clusters is None else {}
        name = "n_components" if isinstance(model, ABMixture) else "n_clusters"
        model.set_params(**{name: n_clusters or _lowest(bics)}).fit(dataset.matrices)
        if dataset.labels is not None:
            return bics, math.nan
        return bics, measure_stability(model, dataset.matrices, _get_groups(dataset))


def _get_groups(dataset: Dataset) -> Labels | None:
    """Return the groups of matrices, by default their images."""
    return dataset.files if dataset.groups is None else dataset.groups


def _lowest(bics: dict[int, float]) -> int:
    return min(bics, key=bics.__getitem__)


def _compute_bics(model: BaseEstimator, matrices: RealArray) -> dict[int, float]:
    """Compute the BIC of mixtures of 1, 2, ... components, until it has risen twice."""
    from divlearn.cluster import ABMixture
    from divlearn.fitting.progress import is_interrupted

    divergence = model.divergence if isinstance(model, ABMixture) else "learn"
    bics: dict[int, float] = {}
    params = {name: getattr(model, name) for name in ("random_state", "engine", "regularize")}
    most = min(_MAX_CLUSTERS, max(len(matrices) // 5, 1))  # a spread needs five matrices
    for count in range(1, most + 1):
        bics |= ABMixture(count, divergence, **params).fit(matrices).bics_
        if is_interrupted() or count >= _lowest(bics) + 2:
            break
    return bics


def _show(
    out: Output,
    model: BaseEstimator,
    dataset: Dataset,
    bics: dict[int, float],
    stability: float,
    output: Path | None,
) -> None:
    import numpy as np

    from divlearn.cluster.agreement import centers_of
    from divlearn.report.fitted import cluster_page, say_clusters

    labels = model.predict(dataset.matrices)
    sizes = np.bincount(labels, minlength=len(centers_of(model)))
    out.table(["cluster", "matrices"], [[str(i), str(n)] for i, n in enumerate(sizes)])
    text = _summarise(model, bics)
    headline, evidence = say_clusters(labels, dataset.labels, _get_groups(dataset), stability)
    out.say(f"{headline} {evidence}".rstrip())
    out.say(text)
    scores, _ = _compare(out, labels, "labels", dataset.labels)
    group_scores, said = _compare(out, labels, "groups", dataset.groups)
    if output is not None:
        out.say(f"Model: {output}")
    summary = f"{evidence}\n{text}\n{said}".rstrip()
    args = model, labels, dataset.labels, scores, headline, summary, bics
    out.write_page(partial(cluster_page, *args), {"clustering": out.seconds})
    out.finish(
        labels=labels,
        sizes=sizes,
        headline=headline,
        summary=text,
        agreement=scores,
        agreement_with_groups=group_scores,
        stability=stability,
    )


def _make_model(method: str, divergence: str | None, seed: int, engine: str) -> BaseEstimator:
    from divlearn.cluster import ABKMeans, ABMixture, KarcherKMeans, LogEuclideanKMeans

    estimators = {
        "k-means": ABKMeans,
        "mixture": ABMixture,
        "karcher": KarcherKMeans,
        "log-euclidean": LogEuclideanKMeans,
    }
    if method not in estimators:
        raise ValueError(f"--method {method} must be one of {', '.join(estimators)}")
    params: dict[str, object] = {} if method == "log-euclidean" else {"engine": engine}
    if divergence is not None:
        if method not in ("k-means", "mixture"):
            raise ValueError(f"--divergence {divergence} must be left out with --method {method}")
        params["divergence"] = _parse_divergence(divergence)
    return estimators[method](random_state=seed, **params)


def _parse_divergence(divergence: str) -> str | tuple[float, ...]:
    if "," not in divergence:
        return divergence
    try:
        alpha, beta = map(float, divergence.split(","))
        if math.isfinite(alpha) and math.isfinite(beta):
            return alpha, beta
    except ValueError:  # not two numbers
        pass
    raise ValueError(f"--divergence {divergence} must be a name or two numbers: 0.5,1.5")


def _summarise(model: BaseEstimator, bics: dict[int, float]) -> str:
    import numpy as np

    text, steps = "", counted(model.n_iter_, "iterations")
    if bics:
        best, most = _lowest(bics), max(bics)
        found = f"the lowest BIC ({bics[best]:.1f}) of mixtures of 1 to {most} components"
        found = found if most > 1 else "the only one that was tried"
        text = f"Number of clusters: {best}, {found}{'; pass -k for more' * (best == most)}. "
    if not hasattr(model, "alpha_"):
        metric = getattr(model, "divergence", "log-euclidean")
        return f"{text}Metric: {metric}. {steps}: {model.message_}."
    alpha, beta = (float(np.mean(value)) for value in (model.alpha_, model.beta_))
    return f"{text}Divergence: alpha = {alpha:.3g}, beta = {beta:.3g}. {steps}: {model.message_}."


def _compare(
    out: Output, labels: Indices, name: str, truth: Labels | None
) -> tuple[dict[str, float], str]:
    """Print and return the agreement of cluster labels with the true labels, or groups."""
    if truth is None:
        return {}, ""
    from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

    from divlearn.cluster import matched_f1_score, pairwise_f1_score

    scores = {
        "pairwise F1": pairwise_f1_score(truth, labels),
        "matched F1": matched_f1_score(truth, labels),
        "ARI": float(adjusted_rand_score(truth, labels)),
        "NMI": float(normalized_mutual_info_score(truth, labels)),
    }
    listed = ", ".join(f"{score} {value:.3f}" for score, value in scores.items())
    said = f"Agreement with the {name}: {listed}."
    out.say(said)
    return scores, said
