"""What the divergences of a fitted IDDL model are worth, in words."""

from collections.abc import Mapping, Sequence

import numpy as np

from divlearn.arrays import RealArray
from divlearn.divergence.named import MEMBERS
from divlearn.fitting.selection import mean_with_error
from divlearn.iddl.objective import are_filters
from divlearn.iddl.training import Model


def name_point(alpha: float, beta: float) -> str:
    """Name a point (alpha, beta) if it has a name."""
    names = [
        one.name
        for one in MEMBERS
        if not one.symmetrized and (one.alpha, one.beta) == (alpha, beta)
    ]
    return names[0] if names else f"({alpha:g}, {beta:g})"


_CLEARLY = 2.0  # standard errors of a difference that counts


def summarize(
    models: Sequence[Model], starts: Sequence[Model], losses: Mapping[str, RealArray]
) -> str:
    """Describe divergences of models, and compare losses, one by one, with those of "model".

    Those of "chance" are of a prediction that does not look at the matrices.
    """
    every = [*models, *starts]
    full = [one for one in every if not are_filters(one.atoms)]
    ranks = sorted({one.atoms.shape[2] for one in every if are_filters(one.atoms)})
    counts = [("full rank", len(full))]
    counts += [(f"rank {rank}", sum(one.atoms.shape[2] == rank for one in every)) for rank in ranks]
    lines = ["Models: " + ", ".join(f"{count} of {name}" for name, count in counts if count)]
    if full:
        lines += [
            "",
            f"{'divergence':<16}{'alpha':<14}{'beta':<14}{'weight':<9}held-out loss alone",
        ]
        lines += _pairs(full, losses)
    totals = {name: float(one.sum()) for name, one in losses.items()}
    joined = totals.pop("with discriminants", None)
    fixed = {name: total for name, total in totals.items() if name not in ("model", "chance")}
    if joined is not None:
        lines += ["", f"Held-out loss {joined:.4g}, averaged with discriminants of the features."]
    if fixed:
        lines += ["", _compare(losses, min(fixed, key=fixed.__getitem__))]
    return "\n".join(lines)


def _pairs(models: Sequence[Model], losses: Mapping[str, RealArray]) -> list[str]:
    """Make a line for every pair of the models."""
    n_pairs = models[0].alpha.shape[1]
    squares = np.sum([_squares(one.head[0], n_pairs) for one in models], axis=0)
    lines = []
    for pair, share in enumerate(squares / squares.sum()):
        alpha, beta = (
            np.concatenate([getattr(one, name)[:, pair] for one in models])
            for name in ("alpha", "beta")
        )
        fixed = np.ptp(alpha) == np.ptp(beta) == 0
        name = name_point(float(alpha[0]), float(beta[0])) if fixed else "learned"
        alone = f"{losses[name].sum():.4g}" if name in losses else "-"
        lines.append(f"{name:<16}{_range(alpha):<14}{_range(beta):<14}{share:<9.0%}{alone}")
    return lines


def _squares(weights: RealArray, n_pairs: int) -> RealArray:
    """Sum the squares of a head over outputs and atoms."""
    return (weights**2).sum(axis=0).reshape(-1, n_pairs).sum(axis=0)


def _range(values: RealArray) -> str:
    low, high = values.min(), values.max()
    return f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}"


def _compare(losses: Mapping[str, RealArray], best: str) -> str:
    model, other = losses["model"], losses[best]
    gains = other - model
    gain, error = (len(gains) * one for one in mean_with_error(gains))  # of the sum
    verdict = "no clear difference"
    if abs(gain) > _CLEARLY * error:
        verdict = "learning pays" if gain > 0 else "the fixed divergence is better"
    # Without signal, the average of many models loses less than one alone, and pays for nothing.
    better = model if gain > 0 else other
    known, doubt = mean_with_error(losses["chance"] - better)
    if known <= _CLEARLY * doubt:
        verdict = "neither is clearly better than chance"
    return (
        f"Held-out loss {model.sum():.4g} of linear heads; {other.sum():.4g} with {best} alone, "
        f"the best fixed divergence, and the initial atoms. Gain {gain:.3g} +- {error:.2g}, paired "
        f"over {len(gains)} matrices or groups: {verdict}."
    )
