"""``divlearn cluster``: clusters of matrices."""

import math
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from divlearn.cli import options
from divlearn.cli.output import Output

_MOST = 20  # clusters to choose from


def cluster(
    data: options.Data,
    n_clusters: Annotated[
        int | None,
        typer.Option(
            "--clusters",
            "-k",
            help="Number of clusters; the one with the lowest BIC by default.",
            callback=options.between("-k/--clusters", 1),
        ),
    ] = None,
    method: Annotated[
        str, typer.Option(help="k-means, mixture, karcher or log-euclidean.")
    ] = "k-means",
    divergence: Annotated[
        str | None,
        typer.Option(
            help='Name, "alpha,beta" or "learn", for k-means and mixture; "likelihood" for k-means.'
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File of the model.")
    ] = None,
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
    import numpy as np

    from divlearn.cli.data import data_files, read_data
    from divlearn.cluster.agreement import measure_stability
    from divlearn.models import save
    from divlearn.report.clusters import cluster_page, say_clusters

    out = Output(as_json, report, reads=data_files(data, groups), writes=[("--output", output)])
    model = _make(method, divergence, seed, engine).set_params(regularize=regularize)
    dataset = read_data(data, matrices, labels, regularize, out, groups, "compare clusters with it")
    _check_number(n_clusters, len(dataset.matrices))
    with out.working(f"Clustering {len(dataset.matrices)} matrices"):
        bics, why = _choose_number(model, dataset.matrices) if n_clusters is None else ({}, "")
        count = min(bics, key=bics.__getitem__) if n_clusters is None else n_clusters
        model.set_params(**{"n_components" if method == "mixture" else "n_clusters": count})
        found = model.fit(dataset.matrices).predict(dataset.matrices)
        # Matrices of one image belong together, as those of a group do.
        together = dataset.files if dataset.groups is None else dataset.groups
        stability = math.nan
        if dataset.labels is None:
            stability = measure_stability(model, dataset.matrices, together)
    sizes = np.bincount(found, minlength=count)
    out.table(["cluster", "matrices"], [[str(i), str(n)] for i, n in enumerate(sizes)])
    text = why + _say(model)
    headline = say_clusters(found, dataset.labels, together, stability)
    out.say(f"{headline}\n{text}")
    scores = _agreement(out, "labels", dataset.labels, found)
    with_groups = _agreement(out, "groups", dataset.groups, found)
    if output is not None:
        save(model, output)
        out.say(f"Model: {output}")
    digest = out.digest(dataset)
    page = partial(cluster_page, model, found, dataset.labels, scores, text, bics)
    page = partial(page, groups=together, stability=stability)
    out.write_page(page, digest, {"clustering": out.seconds})
    out.finish(
        labels=found,
        sizes=sizes,
        headline=headline,
        summary=text,
        agreement=scores,
        agreement_with_groups=with_groups,
        stability=stability,
        data=digest,
    )


def _check_number(n_clusters: int | None, n_matrices: int) -> None:
    if n_clusters is not None and n_clusters > n_matrices:
        raise ValueError(
            f"-k/--clusters {n_clusters} must be <= {n_matrices}, the number of matrices; lower "
            "it or pass more data"
        )


def _choose_number(model: Any, matrices: Any) -> tuple[dict[int, float], str]:
    """Compute the BIC of mixtures of 1, 2, ... components, until it has risen twice."""
    from divlearn.cluster import ABMixture
    from divlearn.fitting.interrupts import is_interrupted

    divergence = model.divergence if isinstance(model, ABMixture) else "learn"
    bics: dict[int, float] = {}
    for count in range(1, min(_MOST, max(len(matrices) // 5, 1)) + 1):  # fewer have no spread
        given = {"random_state": model.random_state, "engine": model.engine}
        bics |= ABMixture(count, divergence, **given).fit(matrices).bics_
        best = min(bics, key=bics.__getitem__)
        if is_interrupted() or count >= best + 2:
            break
    found = f"the lowest BIC ({bics[best]:.1f}) of mixtures of 1 to {count} components"
    return bics, f"Number of clusters: {best}, {found}{'; pass -k for more' * (best == _MOST)}. "


def _make(method: str, divergence: str | None, seed: int, engine: str) -> Any:
    from divlearn.cluster import ABKMeans, ABMixture, KarcherKMeans, LogEuclideanKMeans

    kinds = {
        "k-means": ABKMeans,
        "mixture": ABMixture,
        "karcher": KarcherKMeans,
        "log-euclidean": LogEuclideanKMeans,
    }
    if method not in kinds:
        raise ValueError(f"--method {method} must be one of {', '.join(kinds)}")
    given: dict[str, Any] = {} if method == "log-euclidean" else {"engine": engine}
    if divergence is not None:
        if method not in ("k-means", "mixture"):
            raise ValueError(f"--divergence {divergence} must be left out with --method {method}")
        given["divergence"] = _parse(divergence)
    return kinds[method](random_state=seed, **given)


def _parse(divergence: str) -> str | tuple[float, ...]:
    if "," not in divergence:
        return divergence
    try:
        alpha, beta = map(float, divergence.split(","))
        if math.isfinite(alpha) and math.isfinite(beta):
            return alpha, beta
    except ValueError:  # no numbers, or not two of them
        pass
    raise ValueError(f"--divergence {divergence} must be a name or two numbers: 0.5,1.5")


def _say(model: Any) -> str:
    import numpy as np

    from divlearn.cluster import LogEuclideanKMeans

    steps = f"{model.n_iter_} iteration{'s' * (model.n_iter_ != 1)}"
    if isinstance(model, LogEuclideanKMeans):
        return f"Log-Euclidean k-means, {steps}: {model.message_}."
    alpha, beta = (float(np.mean(value)) for value in (model.alpha_, model.beta_))
    return f"Divergence: alpha = {alpha:.3g}, beta = {beta:.3g}. {steps}: {model.message_}."


def _agreement(out: Output, what: str, known: Any, found: Any) -> dict[str, float]:
    if known is None:
        return {}
    from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

    from divlearn.cluster import matched_f1_score, pairwise_f1_score

    scores = {
        "pairwise F1": pairwise_f1_score(known, found),
        "matched F1": matched_f1_score(known, found),
        "ARI": float(adjusted_rand_score(known, found)),
        "NMI": float(normalized_mutual_info_score(known, found)),
    }
    told = ", ".join(f"{name} {value:.3f}" for name, value in scores.items())
    out.say(f"Agreement with the {what}: {told}.")
    return scores
