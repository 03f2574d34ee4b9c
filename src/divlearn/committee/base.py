"""Base of committees: the fits of their members, and the average of these."""

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
from divlearn.engines import Engine, get_engine
from divlearn.fitting.checkpoint import checkpointed, draw_seed, stage
from divlearn.fitting.folds import Splitter, number_units
from divlearn.fitting.held_out import Folded
from divlearn.fitting.interrupts import is_interrupted, stoppable
from divlearn.fitting.labelled import Checked
from divlearn.fitting.progress import on_progress, say, tell
from divlearn.iddl.base import default_atoms
from divlearn.kernels import POINTS
from divlearn.kernels.tables import make_tables, shared_columns
from divlearn.threads import check_jobs
from divlearn.tolerances import LEARNING_ACCURACY

Members = dict[str, BaseEstimator]
MemberNames = Sequence[str | tuple[str, BaseEstimator]]  # names, or users' own with a name
# From predictions of members, rows of matrices and their counts.
FitAverage = Callable[[RealArray, Indices, RealArray], Average]
_D = TypeVar("_D", bound=Folded)
# Over pairs of matrices and atoms of a fold; as much work as learning was measured to be.
_PASSES = 6
_PROBED = 32  # matrices, to see how long a divergence takes

clock = time.monotonic  # tests have their own


class _TimeUp(Exception):
    """The time of the members is over."""


def _check_time(end: float) -> None:
    if end < np.inf and clock() > end:
        raise _TimeUp


class Committee(BaseEstimator, Generic[_D]):  # type: ignore[misc]
    """Base of estimators that average members, weighted by held-out data."""

    _kind: ClassVar[str]  # "classifier" or "regressor"
    # Members by name, in the order in which they are fitted: the later, the longer it takes.
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

    def _fit(self, kind: type[_D], data: Checked, y: RealArray | Indices, users: Members) -> None:
        """Fit members to checked data on common folds, and weight them."""
        given = {"y": y, "weights": data.weights, "groups": data.kept_groups}
        with checkpointed(self, X=data.matrices, **given):
            folds = data.folds(self.cv, draw_seed(self.random_state))
            training = kind(data, folds, get_engine(self.engine, accuracy=LEARNING_ACCURACY))
            found = self._fit_members(training, users, draw_seed(self.random_state))
            self.members_ = {name: found[name] for name in self._names() if name in found}
            self._weigh(training)

    def _names(self) -> list[str]:
        return [one if isinstance(one, str) else one[0] for one in self.members]

    def _check_parameters(self) -> Members:
        """Check members and time, and return members that the user passed, by name."""
        if isinstance(self.members, str) or not len(self.members):
            raise ValueError(f"members={self.members!r} must be a sequence of names")
        users, known = {}, (*self._quick, "iddl")
        for one in self.members:
            if isinstance(one, str) and one not in known:
                raise ValueError(
                    f"member {one!r} must be one of {', '.join(known)}, or (name, {self._kind})"
                )
            if not isinstance(one, str):
                if len(one) != 2 or not isinstance(one[0], str) or one[0] in known:
                    raise ValueError(
                        f"member {one!r} must be a new name and a {self._kind}, such as "
                        f"('mine', {self._kind})"
                    )
                users[one[0]] = self._wrapper(one[1])
                users[one[0]]._check_parameters()
        names = self._names()
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"member {twice[0]!r} is named twice; name it once")
        if not (self.time_limit is None or (is_number(self.time_limit) and self.time_limit > 0)):
            raise ValueError(f"time_limit={self.time_limit!r} must be > 0, in seconds, or None")
        check_jobs(self.n_jobs)
        return users

    def _fit_members(self, training: _D, users: Members, seed: int) -> Members:
        """Fit the members, those that take longest last; an interrupt keeps what there is."""
        names = self._names()
        kinds = [name for name in (*self._quick, *users, "iddl") if name in names]
        found: Members = {}
        notes: list[str] = []
        reached, limit, began = "", self.time_limit, clock()
        with stoppable(lambda: found):
            for done, kind in enumerate(kinds):
                left = np.inf if limit is None else limit - (clock() - began)
                if found and limit and self._estimate(kind, found, training) > left:
                    notes.append(f"{kind} was skipped: it would exceed time_limit={limit:g}")
                    continue
                tell(f"kinds of {self._kind}s", done, len(kinds), f"fitting {kind}{reached}")
                say(self, f"{clock() - began:.1f} s: fitting {kind}{reached}")
                fit = partial(self._fit_member, kind, training, users, seed)
                # One member is needed, however long it takes.
                end = began + limit if found and limit else np.inf
                try:
                    with on_progress(partial(_check_time, end)):
                        found[kind] = stage(kind, fit)
                except _TimeUp:
                    notes.append(f"{kind} was left out: it did not finish in time_limit={limit:g}")
                    continue
                # No reason to do without the others.
                except (ValueError, FloatingPointError) as error:
                    notes.append(f"{kind} was left out: {error}")
                    continue
                reached = f"; held-out {self._figure(kind, found[kind], training)}"
                if is_interrupted():  # inside, where the best so far was kept
                    break
            else:
                tell(f"kinds of {self._kind}s", len(kinds), len(kinds), reached.removeprefix("; "))
        if is_interrupted():
            notes.append("interrupted by the user")
        if not found:
            raise ValueError(f"no member could be fitted: {'; '.join(notes)}; pass more data")
        count = f"{len(found)} of {len(self.members)} members were fitted"
        self.message_ = "; ".join([count, *notes])
        return found

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
        if not np.isfinite(self._held_out(member)[training.data.kept[training.tested]]).all():
            raise FloatingPointError(f"held-out predictions of {name} are not all numbers")
        return member

    def _estimate(self, kind: str, found: Members, training: _D) -> float:
        """Guess the seconds that a kind of member takes, from a few pairs of matrices."""
        data = training.data
        n = len(data.matrices)
        n_atoms = default_atoms(n, len(np.unique(data.strata)))
        n_columns = len(shared_columns(training))
        pairs = {
            "kernel": n * n_columns / (2 if n_columns == n else 1),
            "iddl": _PASSES * n * n_atoms * len(training.folds),
        }
        if kind == "nearest neighbour" and "kernel" not in found and n_columns == n:
            kind = "kernel"  # which computes the same tables
        if kind not in pairs:
            return 0.0
        some = data.matrices[:: max(n // _PROBED, 1)]
        began = clock()
        make_tables(training.engine, some, POINTS)
        return pairs[kind] * (clock() - began) / (len(some) ** 2 / 2)

    def _count(self, training: _D) -> tuple[RealArray, Indices]:
        """Count held-out matrices in the weights of members, and number what is independent."""
        data, tested = training.data, training.tested
        units = number_units(tested, data.kept_groups)
        return count_samples(data.weights[tested], units), units

    def _average(
        self,
        training: _D,
        honest: RealArray,
        final: RealArray,
        counts: RealArray,
        fit: FitAverage,
    ) -> tuple[float, RealArray]:
        """Weigh the members, and average held-out predictions by what the other folds say.

        Returned are the temperature and these averages. Members are weighed as they will predict,
        with all folds for their choice: by `final`.
        """
        tested = training.tested
        weights, temperature = fit(final, tested, counts)
        self.weights_ = dict(zip(self.members_, weights.tolist(), strict=True))
        averages = np.empty(honest.shape[1:])
        for _, held in training.folds:
            inside = np.isin(tested, held)
            others = ~inside if not inside.all() else inside
            without = fit(honest[:, others], tested[others], counts[others])
            averages[inside] = average(honest[:, inside], *without)
        return temperature, averages

    def _summarize(self, weighing: str, figures: dict[str, str], result: str) -> str:
        """List the weights of the members, and say whether a single member would do as well."""
        parts = [
            f"{name} {weight:.2f} ({figures[name]})"
            for name, weight in sorted(self.weights_.items(), key=lambda item: -item[1])
        ]
        text = f"Weights by the likelihood of held-out {weighing}: {', '.join(parts)}. {result}"
        if self.simple_ is not None and len(self.members_) > 1:
            own = self.simple_ not in self.members  # of the user, who has the estimator
            members = f"[({self.simple_!r}, ...)]" if own else f"({self.simple_!r},)"
            text += (
                f" {self.simple_} alone is as good or better, up to one standard error; "
                f"{type(self).__name__}({members}) is simpler."
            )
        return text
