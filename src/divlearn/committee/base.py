"""Base of committees: fits of the members, and their weighted average."""

import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar, Generic, TypeVar

import numpy as np
from sklearn.base import BaseEstimator

from divlearn.arrays import Indices, RealArray
from divlearn.checks import RandomState, is_number
from divlearn.committee.weights import Average, average, count_samples
from divlearn.engines import Engine
from divlearn.fitting.checkpoint import checkpointed, draw_seed, stage
from divlearn.fitting.folds import Splitter, number_units
from divlearn.fitting.held_out import FoldedData
from divlearn.fitting.labelled import Checked, engine_of
from divlearn.fitting.progress import is_interrupted, notify, on_progress, stoppable
from divlearn.iddl.base import default_atoms
from divlearn.kernels import POINTS
from divlearn.kernels.tables import make_tables, shared_columns
from divlearn.text import counted
from divlearn.threads import check_jobs
from divlearn.tolerances import LEARNING_ACCURACY

Members = dict[str, BaseEstimator]
MemberNames = Sequence[str | tuple[str, BaseEstimator]]  # names, or pairs with users' estimators
# A function of the predictions of members, rows of matrices and their counts.
FitAverage = Callable[[RealArray, Indices, RealArray], Average]
_D = TypeVar("_D", bound=FoldedData)
_PASSES = 10  # over pairs of matrices and atoms, in a fold of "iddl", as measured
_PROBED = 32  # matrices, at first, to measure the time of a divergence
_PROBE_SECONDS, _PROBE_SHARE = 0.25, 0.02  # at most, also of the time limit; then it ends

clock = time.monotonic  # tests have their own


class _TimeUp(Exception):
    """The time of the members is over."""


def _check_time(end: float) -> None:
    if end < np.inf and clock() > end:
        raise _TimeUp


class Committee(BaseEstimator, Generic[_D]):  # type: ignore[misc]
    """Base of estimators that average members, weighted by held-out data."""

    _kind: ClassVar[str]  # "classifier" or "regressor"
    # Members by name, in the order of their fits: the slowest come last.
    _quick: ClassVar[dict[str, Callable[..., BaseEstimator]]]
    _learned: ClassVar[type[BaseEstimator]]  # the member "iddl", after all others
    _wrapper: ClassVar[type[BaseEstimator]]  # of members that users pass

    members: MemberNames
    time_limit: float | None
    cv: Splitter
    random_state: RandomState
    engine: str | Engine
    n_jobs: int | None
    verbose: int

    hermitian_: bool
    members_: Members
    weights_: dict[str, float]
    simple_: str | None
    message_: str

    @abstractmethod
    def _held_out(self, member: BaseEstimator) -> RealArray:
        """Return held-out predictions of a member, chosen without each fold."""

    @abstractmethod
    def _figure(self, name: str, member: BaseEstimator, training: _D) -> str:
        """Format the held-out score of a member."""

    @abstractmethod
    def _weigh(self, training: _D) -> None:
        """Weight the members, and keep held-out figures."""

    def _fit(self, make: type[_D], data: Checked, y: RealArray | Indices, users: Members) -> None:
        """Fit members to checked data on common folds, and weight them."""
        key = {"X": data.matrices, "y": y, "weights": data.weights, "groups": data.matrix_groups}
        with checkpointed(self, **key):
            folds = data.folds(self.cv, draw_seed(self.random_state))
            training = make(data, folds, engine_of(self, LEARNING_ACCURACY))
            fitted = self._fit_members(training, users, draw_seed(self.random_state))
            self.members_ = {name: fitted[name] for name in self._names() if name in fitted}
            self._weigh(training)

    def _names(self) -> list[str]:
        return [member if isinstance(member, str) else member[0] for member in self.members]

    def _check_parameters(self) -> Members:
        """Check ``members`` and ``time_limit``, and return members of the user by name."""
        if isinstance(self.members, str) or not len(self.members):
            raise ValueError(f"members={self.members!r} must be a sequence of names")
        users, names = {}, (*self._quick, "iddl")
        for member in self.members:
            if isinstance(member, str) and member not in names:
                raise ValueError(
                    f"member {member!r} must be one of {', '.join(names)}, or (name, {self._kind})"
                )
            if not isinstance(member, str):
                if len(member) != 2 or not isinstance(member[0], str) or member[0] in names:
                    raise ValueError(
                        f"member {member!r} must be a new name and a {self._kind}, such as "
                        f"('mine', {self._kind})"
                    )
                users[member[0]] = self._wrapper(member[1])
                users[member[0]]._check_parameters()
        requested = self._names()
        if twice := [name for name in requested if requested.count(name) > 1]:
            raise ValueError(f"member {twice[0]!r} is named twice; name it once")
        if not (self.time_limit is None or (is_number(self.time_limit) and self.time_limit > 0)):
            raise ValueError(f"time_limit={self.time_limit!r} must be > 0, in seconds, or None")
        check_jobs(self.n_jobs)
        return users

    def _fit_members(self, training: _D, users: Members, seed: int) -> Members:
        """Fit the members, the slowest last; an interrupt keeps the fitted ones."""
        requested = self._names()
        names = [name for name in (*self._quick, *users, "iddl") if name in requested]
        fitted: Members = {}
        notes: list[str] = []
        news, limit, began = "", self.time_limit, clock()
        with stoppable(lambda: fitted):
            for done, name in enumerate(names):
                left = np.inf if limit is None else limit - (clock() - began)
                if fitted and limit and self._estimate(name, fitted, training) > left:
                    notes.append(f"{name} was skipped: it would exceed time_limit={limit:g}")
                    continue
                notify(f"kinds of {self._kind}s", done, len(names), f"fitting {name}{news}")
                fit = partial(self._fit_member, name, training, users, seed)
                # One member is needed, however long it takes.
                end = began + limit if fitted and limit else np.inf
                try:
                    with on_progress(partial(_check_time, end)):
                        fitted[name] = stage(name, fit)
                except _TimeUp:
                    notes.append(f"{name} was left out: it did not finish in time_limit={limit:g}")
                    continue
                # The others may still be fitted.
                except (ValueError, FloatingPointError) as error:
                    notes.append(f"{name} was left out: {error}")
                    continue
                news = f"; held-out {self._figure(name, fitted[name], training)}"
                if is_interrupted():  # the member has the best result so far
                    break
            else:
                notify(f"kinds of {self._kind}s", len(names), len(names), news.removeprefix("; "))
        if is_interrupted():
            notes.append("interrupted by the user")
        if not fitted:
            raise ValueError(f"no member could be fitted: {'; '.join(notes)}; pass more data")
        count = f"{len(fitted)} of {counted(len(self.members), 'members')} were fitted"
        self.message_ = "; ".join([count, *notes])
        return fitted

    def _fit_member(self, name: str, training: _D, users: Members, seed: int) -> BaseEstimator:
        if name == "iddl":
            verbose = max(self.verbose - 1, 0)
            member = self._learned(random_state=seed, engine=self.engine, verbose=verbose)
        else:
            member = users[name] if name in users else self._quick[name](engine=self.engine)
        if self.n_jobs is not None and "n_jobs" in member.get_params(deep=False):
            member.set_params(n_jobs=self.n_jobs)
        member.hermitian_ = self.hermitian_
        member.fit_training(training)
        if not np.isfinite(self._held_out(member)[training.data.positions[training.tested]]).all():
            raise FloatingPointError(f"held-out predictions of {name} are not all numbers")
        return member

    def _estimate(self, name: str, fitted: Members, training: _D) -> float:
        """Estimate the seconds that a member takes, from a few pairs of matrices."""
        data = training.data
        n = len(data.matrices)
        n_atoms = default_atoms(n, len(np.unique(data.strata)))
        n_columns = len(shared_columns(training))
        pairs = {
            "kernel": n * n_columns / (2 if n_columns == n else 1),
            "iddl": _PASSES * n * n_atoms * len(training.folds),
        }
        if name == "nearest neighbour" and "kernel" not in fitted and n_columns == n:
            name = "kernel"  # which computes the same tables
        if name not in pairs:
            return 0.0
        return pairs[name] * training.cached("pair", lambda: self._measure_pair(training))

    def _measure_pair(self, training: _D) -> float:
        """Measure the seconds of a pair of matrices, by more and more of them: calls cost time."""
        matrices, enough = training.data.matrices, self._probe_seconds()
        step = max(len(matrices) // _PROBED, 1)
        last_seconds = last_pairs = 0.0
        while True:
            probe, began = matrices[::step], clock()
            make_tables(training.engine, probe, POINTS)
            seconds, pairs = clock() - began, len(probe) ** 2 / 2
            if seconds >= enough or step == 1:
                more = (seconds - last_seconds) / (pairs - last_pairs)
                return more if more > 0 else seconds / pairs
            last_seconds, last_pairs, step = seconds, pairs, step // 2

    def _probe_seconds(self) -> float:
        """Seconds after which a measurement ends."""
        return min(_PROBE_SECONDS, _PROBE_SHARE * (self.time_limit or np.inf))

    def _count(self, training: _D) -> tuple[RealArray, Indices]:
        """Return counts of held-out matrices, for the weights of members, and their units."""
        data, tested = training.data, training.tested
        units = number_units(tested, data.matrix_groups)
        return count_samples(data.weights[tested], units), units

    def _average(
        self,
        training: _D,
        held_out: RealArray,
        optimistic: RealArray,
        counts: RealArray,
        fit: FitAverage,
    ) -> tuple[float, RealArray]:
        """Weight the members by `optimistic` predictions, of choices by all folds like new ones.

        Return the temperature, and averages of held-out predictions by weights of the other folds.
        """
        tested = training.tested
        weights, temperature = fit(optimistic, tested, counts)
        self.weights_ = dict(zip(self.members_, weights.tolist(), strict=True))
        averages = np.empty(held_out.shape[1:])
        for _, fold_rows in training.folds:
            inside = np.isin(tested, fold_rows)
            others = ~inside if not inside.all() else inside
            without = fit(held_out[:, others], tested[others], counts[others])
            averages[inside] = average(held_out[:, inside], *without)
        return temperature, averages

    def _summarize(self, weighing: str, figures: dict[str, str], result: str) -> str:
        """List the weights of the members, and say whether a single member would do as well."""
        parts = [
            f"{name} {weight:.2f} ({figures[name]})"
            for name, weight in sorted(self.weights_.items(), key=lambda item: -item[1])
        ]
        text = f"Weights by the likelihood of held-out {weighing}: {', '.join(parts)}. {result}"
        if self.simple_ is not None and len(self.members_) > 1:
            is_users = self.simple_ not in self.members  # in a pair with the estimator
            members = f"[({self.simple_!r}, ...)]" if is_users else f"({self.simple_!r},)"
            text += (
                f" {self.simple_} alone is as good or better, up to one standard error; "
                f"{type(self).__name__}({members}) is simpler."
            )
        return text
