"""The result of `which_divergence` and its summary; the base class of results with a summary."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Literal

from divlearn.alpha_beta import Point
from divlearn.arrays import RealArray
from divlearn.judge.significance import SIGNIFICANT, least_of_flips, say_too_few
from divlearn.text import counted, harmless, say_p

MEAN, NEIGHBOUR, LEARNED = "nearest mean", "nearest neighbour", "learned nearest neighbour"


class Summarised:
    """A result whose `summary()` is shown by notebooks."""

    def _repr_html_(self) -> str:
        return f"<p>{escape(harmless(self.summary()))}</p>"  # type: ignore[attr-defined]


def format_point(point: Sequence[float]) -> str:
    return "({:g}, {:g})".format(*point)


def say_how_many(done: int, total: int, items: str, ending: str) -> str:
    if done < total:
        return f"interrupted by the user: {done:,} of {total:,} {items} {ending}"
    return f"{f'all {total:,} {items}' if total > 1 else counted(total, items)} {ending}"


@dataclass(frozen=True)
class NamedScore:
    """A named divergence compared with the learned one on the same matrices.

    Attributes
    ----------
    alpha, beta : float
    score : float, held-out accuracy of the nearest neighbour, or mean log-likelihood per matrix.
    difference : float, score of the learned point minus this score.
    standard_error : float, of the paired difference.
    p_value : float, of no difference: max-T sign-flip test over matrices (groups), adjusted for the
        comparison with all named divergences, at least `WhichDivergence.p_chance`; or
        likelihood-ratio test of two parameters, for many matrices, where it is conservative on the
        axes. With 5 and 10 Wishart matrices of size 3 it was below 0.05 in 17 % and 5 % of 60 data
        sets.
    bic_difference : float, BIC of this divergence minus BIC of the learned one, which has two more
        parameters; positive if the learned one is preferred. NaN with labels.
    mean_score : float, held-out accuracy of the nearest class mean, or NaN.
    margin : float
        Only without labels: the standard errors by which the learned point must be ahead, a
        quantile of Student's t with two degrees of freedom less than matrices, 2 for many.
    """

    alpha: float
    beta: float
    score: float
    difference: float
    standard_error: float
    p_value: float
    bic_difference: float = math.nan
    mean_score: float = math.nan
    margin: float = math.nan

    @property
    def beaten(self) -> bool:
        """Whether the learned point is significantly better."""
        if math.isnan(self.bic_difference):
            return self.difference > 0 and self.p_value < SIGNIFICANT
        return self.bic_difference > 0 and self.difference > self.margin * self.standard_error


@dataclass(frozen=True)
class RuleScore:
    """A rule of classification compared with the recommended one on the same matrices.

    Attributes
    ----------
    score : float, held-out accuracy; the divergence is chosen without each fold.
    difference : float, score of the recommended rule minus this score.
    standard_error : float, of the paired difference.
    p_value : float, of no difference: max-T sign-flip test over matrices (groups), adjusted for the
        comparison of all rules, at least `WhichDivergence.p_chance`.
    """

    score: float
    difference: float
    standard_error: float
    p_value: float


@dataclass(frozen=True, eq=False, kw_only=True)
class WhichDivergence(Summarised):
    r"""The answer of `which_divergence`; `summary` says it in words.

    With labels, the criterion is the cross-validated accuracy of two rules: the nearest class mean
    and the nearest neighbour, in every named divergence; for neighbours also at every point of a
    grid, of which the best is the learned one. Where classes differ in size, it is the balanced
    accuracy, the mean over classes. Of more than 2,828 matrices a random part is judged, the same
    share of every class: 8,000,000 over the number of matrices, but at least 1,000. Neighbours and
    means are of all. Without labels, the criterion is the likelihood of
    :math:`p(X) = e^{-\kappa D^{(\alpha,\beta)}(X \| C)} / Z`, see `fit_likelihood`. After an
    interrupt the answer covers the matrices judged so far, a random sample of all, or its map
    contains NaN. KeyboardInterrupt is raised if no matrix was judged.

    Attributes
    ----------
    criterion : {"accuracy", "likelihood"}
    best : (alpha, beta), the point learned from all matrices.
    score : float, of the learned point: held-out accuracy of the nearest neighbour, where the point
        is chosen anew without each fold, or mean log-likelihood per matrix.
    named : dict of NamedScore
    alphas, betas : ndarray, shape (n_alphas,) and (n_betas,), the grid.
    map : ndarray, shape (n_alphas, n_betas), held-out accuracy or mean log-likelihood.
    n_matrices : int, the matrices that were judged.
    message : str, whether the search is complete or was interrupted.
    runner_up : tuple of str, float and float
        Only without labels: the second of the named divergences, the log-likelihood per matrix that
        it loses, and the standard error of this loss.

    Only with labels:

    measure : {"accuracy", "balanced accuracy"}
        What scores are. Where classes differ in size, every class counts alike.
    chosen : tuple of (alpha, beta), the point chosen without each fold.
    chance : float, score of predictions that are independent of the classes.
    p_chance : float, p-value of no rule being better than chance (Bonferroni over the rules).
    p_least : float, the smallest possible ``p_chance``; with few groups it is not significant.
    n_groups : int or None, number of groups.
    rule : {"nearest mean", "nearest neighbour", "learned nearest neighbour"}
        The recommended rule: the one with the highest score in any named divergence. The learned
        nearest neighbour, that at ``best``, is recommended only if it is significantly better.
    rule_score, rule_error : float
        Held-out accuracy of the recommendation and its standard error. Rule and divergence are
        chosen without each fold, so that the choice does not bias the accuracy.
    rules : dict of RuleScore

    Notes
    -----
    Means are exact, and computed without the fold on which they are judged. All choices (the
    learned point, the named divergence of a rule, the recommendation) are made by held-out accuracy
    on the other folds and then judged on the fold, so that no choice is judged by the matrices that
    made it. Scores of single named divergences are plain held-out accuracies.

    A rule is recommended only if at least one rule is better than chance. A t-test compares its
    balanced accuracy with that of predictions which are independent of the classes. The units are
    matrices or groups, with twice their variance, because held-out matrices are predicted from the
    labels of each other.
    """

    criterion: Literal["accuracy", "likelihood"]
    best: Point
    score: float
    named: dict[str, NamedScore]
    alphas: RealArray
    betas: RealArray
    map: RealArray
    n_matrices: int
    message: str = ""
    runner_up: tuple[str, float, float] = ("", math.nan, math.nan)
    measure: str = ""
    chosen: tuple[Point, ...] = ()
    chance: float = math.nan
    p_chance: float = math.nan
    p_least: float = 0.0
    n_groups: int | None = None
    rule: str = ""
    rule_score: float = math.nan
    rule_error: float = math.nan
    rules: dict[str, RuleScore] = field(default_factory=dict)

    @property
    def units(self) -> str:
        """The independent units, "matrices" or "groups"."""
        return "matrices" if self.n_groups is None else "groups"

    @property
    def best_named(self) -> str:
        """Named divergence of the highest score, of the rule if there is one; first of ties."""
        return self._best_named()[0]

    def _best_named(self) -> list[str]:
        scores = {
            name: row.mean_score if self.rule == MEAN else row.score
            for name, row in self.named.items()
        }
        top = max(scores.values())
        return [name for name, score in scores.items() if math.isclose(score, top)]

    def table(self) -> list[dict[str, str | float]]:
        """Rows for the learned point and every named one, the highest score first.

        With labels, "best named" is the named divergence that is chosen without each fold.
        """
        nowhere = {"alpha": math.nan, "beta": math.nan}
        alpha, beta = self.best
        learned = {"alpha": alpha, "beta": beta, "score": self.score, "mean_score": math.nan}
        rows: list[dict[str, str | float]] = [{"name": "learned", **learned}]
        if self.rules:
            score, mean = (self.rules[rule].score for rule in (NEIGHBOUR, MEAN))
            rows.append({"name": "best named", **nowhere, "score": score, "mean_score": mean})
        rows += [{"name": name, **vars(row)} for name, row in self.named.items()]
        return sorted(rows, key=lambda row: -float(row["score"]))

    def summary(self) -> str:
        """Recommend a rule and a divergence, and say how sure that is."""
        return " ".join(say_answer(self))


def say_answer(answer: WhichDivergence) -> list[str]:
    """Return sentences: the answer, the alternatives, and how sure the choice is."""
    if answer.criterion == "likelihood":
        return _say_likelihood(answer)
    if answer.p_chance >= SIGNIFICANT:
        return [_say_chance(answer)]
    return [_say_recommended(answer), *_say_rules(answer)]


def _say_chance(answer: WhichDivergence) -> str:
    scores = ", ".join(f"{row.score:.1%} for the {rule}" for rule, row in answer.rules.items())
    return (
        "No divergence separates these classes significantly better than chance: with the "
        f"divergence chosen without each fold, the held-out {answer.measure} is {scores}, and "
        f"chance is {answer.chance:.1%} ({say_p(answer.p_chance)}, {_say_matrices(answer)})."
        f"{say_too_few(answer.p_least, answer.units)}"
    )


def _say_recommended(answer: WhichDivergence) -> str:
    names = answer._best_named()
    divergences = " or ".join(", ".join(names).rsplit(", ", 1))
    if len(names) == len(answer.named) > 1:
        divergences = "any named divergence"
    rule = answer.rule
    if rule == LEARNED:
        rule, divergences = NEIGHBOUR, f"the learned point {format_point(answer.best)}"
    return (
        f"Use the {rule} in {divergences}: held-out {answer.measure} {answer.rule_score:.1%} +- "
        f"{answer.rule_error:.1%} on {_say_matrices(answer)}, chosen without each fold; chance is "
        f"{answer.chance:.1%}."
    )


def _say_rules(answer: WhichDivergence) -> list[str]:
    """Say how the rules compare, with the divergence of each chosen without each fold."""
    scores = [f"By rule: {answer.rule} {answer.rules[answer.rule].score:.1%}"]
    verdicts: list[str] = []
    for rule, row in answer.rules.items():
        if rule == answer.rule:
            continue
        side, verdict = ("behind", "worse") if row.difference >= 0 else ("ahead", "better")
        negation = "" if row.p_value < SIGNIFICANT else "not "
        scores.append(
            f"{rule} {row.score:.1%}, {100 * abs(row.difference):.1f} +- "
            f"{100 * row.standard_error:.1f} points {side} ({say_p(row.p_value)})"
        )
        verdicts.append(f"the {rule} {'' if verdicts else 'is '}{negation}significantly {verdict}")
    test = f"max-T sign-flip test over {answer.units}, adjusted for all rules"
    sentence = ", ".join(verdicts)
    few = say_too_few(least_of_flips(answer.n_groups or answer.n_matrices), answer.units)
    return [f"{'; '.join(scores)}.", f"{sentence[:1].upper()}{sentence[1:]} ({test}).{few}"]


def _say_matrices(answer: WhichDivergence) -> str:
    groups = "" if answer.n_groups is None else f" of {answer.n_groups} groups"
    return f"{answer.n_matrices} matrices{groups}"


def _say_likelihood(answer: WhichDivergence) -> list[str]:
    name = answer.best_named
    best = answer.named[name]
    fitted = format_point([round(value, 3) for value in answer.best])
    gain = f"gains {best.difference:.2g} +- {best.standard_error:.1g} in log-likelihood per matrix"
    bic = f"BIC {best.bic_difference:+.1f}"
    sample = f"on {answer.n_matrices} matrices"
    if best.beaten:
        return [
            f"Use {fitted}, the maximum of the likelihood: it {gain} over {name}, the best named "
            f"divergence, {sample}.",
            f"The gain is worth its two parameters ({bic}).",
        ]
    other, loss, error = answer.runner_up
    verdict = "" if loss > 2 * error else ", no clear difference"
    doubt = f"does not pay for its two parameters ({bic})"
    if best.bic_difference > 0:
        doubt = f"a t-test does not confirm, though BIC prefers it ({bic})"
    return [
        f"Use {name}: it has the highest likelihood of the named divergences, {sample}.",
        f"The next one, {other}, loses {loss:.2g} +- {error:.1g} in log-likelihood per "
        f"matrix{verdict}.",
        f"The maximum over the plane, {fitted}, {gain}, which {doubt}.",
    ]
