"""Linear heads: ridge in closed form, other losses by Newton's method.

Samples lie in blocks, in memory, on a device or on workers; sums over them come here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from divlearn.arrays import RealArray, on_device, to_device_of, to_host
from divlearn.checks import check_finite
from divlearn.engines.compiled import is_compiled, newton_step, softmax_sums
from divlearn.heads.losses import Loss, SoftmaxLoss
from divlearn.heads.samples import Head, Samples
from divlearn.sharded.blocks import Block
from divlearn.sharded.shards import Parts, Shards
from divlearn.sharded.targets import Targets
from divlearn.threads import Result, map_rows

_NEWTON_STEPS = 50
_CG_STEPS = 100
_BISECTIONS = 40
_FLAT = 0.3  # slope along a step, relative to that at its start, at which a search ends
_ROUNDING = 1e-14
_LAST_GAIN = 100  # times the tolerance: root of the relative gain of a step that is the last
_SINGLE = 1e-5  # least tolerance for which single precision finds directions
_LEAST_GAIN = 0.2  # of a product, relative to the mean of those before, if few digits do
_NEGLIGIBLE = 0.05  # of a penalty: variance of a direction that it leaves less than a hundredth of
_DAMPING = 1e-2
_TINY = float(np.finfo(float).tiny)
_LARGEST_HESSIAN = 150  # entries of a head, for which it costs no more than twenty products
_ROWS = 1024  # of a design that one thread sums over
_MUCH = 1 << 24  # multiplications of a product from which on threads pay


def solve_head(
    loss: Loss, samples: Samples, gamma: float, warm: Head | None = None
) -> tuple[Head, float]:
    """Find the best head; returns it and the objective."""
    if loss.quadratic:
        head = _ridge_head(*samples.centre, *samples.products, gamma)
        return head, objective_of(loss, samples, head, gamma)
    if warm is not None and warm[0].shape[1] != len(samples.centre[0]):
        warm = None
    value = np.inf
    for one in loss.stages():
        warm, value = _Newton(one, samples, gamma).minimize(warm)
    assert warm is not None
    return warm, value


def solve_heads(loss: Loss, shards: Shards, targets: Parts, stack: RealArray, gamma: float) -> Head:
    """Find the best heads for a stack of features of one block; weights and biases are stacked."""
    if loss.quadratic:
        samples = Samples(shards, targets, [stack], loss.bias)
        (middles, level), (grams, crosses) = samples.centre, samples.products
        known = zip(middles, grams, crosses, strict=True)
        heads = [_ridge_head(middle, level, gram, cross, gamma) for middle, gram, cross in known]
    else:
        every = (Samples(shards, targets, [features], loss.bias) for features in stack)
        heads = [solve_head(loss, samples, gamma)[0] for samples in every]
    weights, biases = zip(*heads, strict=True)
    return np.stack(weights), np.stack(biases)


def _ridge_head(
    middle: RealArray, level: RealArray, gram: RealArray, cross: RealArray, gamma: float
) -> Head:
    penalized = gram + 2 * gamma * np.eye(len(gram))
    try:
        W = cho_solve(cho_factor(penalized), cross).T
    except LinAlgError:
        W = np.linalg.lstsq(penalized, cross, rcond=None)[0].T
    return W, level - W @ middle


def objective_of(loss: Loss, samples: Samples, head: Head, gamma: float) -> float:
    """Weighted sum of the losses of a head, and its penalty."""
    parts = [samples.targets, samples.features]
    losses = float(samples.shards.reduce(_losses, loss, head, parts=parts))
    return losses + gamma * float((head[0] ** 2).sum())


def scores_of(head: Head, features: RealArray) -> RealArray:
    """Scores of some samples, shape (n_samples, n_outputs); heads and features may be stacks."""
    weights, bias = (to_device_of(one, features) for one in head)
    return features @ weights.mT + bias[..., None, :]


def slopes_of(targets: Targets, features: RealArray, loss: Loss, head: Head) -> RealArray:
    """Weighted gradients of the losses of some samples in their scores."""
    wanted, weights = targets
    return weights[:, None] * loss.expand(scores_of(head, features), wanted).slopes


def _losses(_: Block, targets: Targets, features: RealArray, loss: Loss, head: Head) -> float:
    wanted, weights = targets
    return float(weights @ loss.expand(scores_of(head, features), wanted).losses)


@dataclass(frozen=True, eq=False)
class _State:
    W: RealArray
    value: float
    gradient: RealArray
    slope: float  # the norm of the gradient
    size: float  # a typical second derivative in the scores
    curvature: Any = None  # second derivatives, for one block in memory


class _Newton:
    """Few steps by conjugate gradients, in components where Hessians are about diagonal.

    All arrays are where the design is: only numbers that decide what follows come from a device.
    """

    def __init__(self, loss: Loss, samples: Samples, gamma: float) -> None:
        self._loss, self._samples, self._gamma = loss, samples, gamma
        self._n_features, n_outputs = map(len, samples.centre)
        rough = loss.tolerance >= _SINGLE
        # Where curvature jumps, as that of hinges does, steps that stop early lead astray.
        self._least_gain = _LEAST_GAIN if rough and isinstance(loss, SoftmaxLoss) else 0.0
        spread, basis = samples.components
        left_out = np.searchsorted(spread, _NEGLIGIBLE * gamma) if rough else 0
        left_out = min(int(left_out), len(spread) - 1)
        spread, basis = spread[left_out:], basis[:, left_out:]
        bias = basis[self._n_features :].sum(axis=0)  # what is not penalised
        self._parts = samples.turn(left_out, rough)
        design = spread if samples.shards.whole is None else self._parts[1][0][0]
        self._spread, self._basis, self._bias, start = (
            to_device_of(one, design)
            for one in (spread, basis, bias, np.zeros((n_outputs, len(spread))))
        )
        unit = np.diag(np.ones_like(self._bias))
        self._penalty = gamma * (unit - np.outer(self._bias, self._bias))
        self._curvature: tuple[_State, Any] | None = None  # of blocks that are far
        self._compiled = self._can_be_compiled()
        self._origin = self._evaluate(start)

    def minimize(self, warm: Head | None) -> tuple[Head, float]:
        origin = state = self._origin
        if warm is not None:
            start = np.concatenate([warm[0], warm[1][:, None]], axis=1)[:, : len(self._basis)]
            known = self._evaluate(to_device_of(start, self._basis) @ self._basis)
            state = known if known.value <= origin.value else origin
        goal = self._loss.tolerance * max(origin.slope, _TINY)
        for _ in range(_NEWTON_STEPS):
            check_finite(state.slope, "the size of the gradient", "of a head")
            if state.slope <= goal:
                break
            following = self._search(state, self._step(state, goal))
            if following is None:
                break
            gain, state = state.value - following.value, following
            # The next step gains less by far. Errors of the objective are those of its gradient
            # squared.
            if gain <= (_LAST_GAIN * self._loss.tolerance) ** 2 * state.value:
                break
        W = to_host(state.W @ self._basis.T)
        head = W[:, : self._n_features], W[:, self._n_features :].sum(axis=1)
        return head, state.value

    def _evaluate(self, W: RealArray) -> _State:
        if self._compiled:
            (targets,), (turned,) = self._parts
            loss, gradient, size, *curvature = softmax_sums(turned[0], targets[0], targets[1], W)
            sums: Any = loss, size
        else:
            shards = self._samples.shards
            known = (self._loss, W, shards.whole is not None)
            sums, gradient, *curvature = shards.reduce(_sums, *known, parts=self._parts)
        penalized = W @ self._penalty
        gradient = gradient + 2 * penalized
        numbers = _fetch(*sums, np.vdot(penalized, W), np.linalg.norm(gradient))
        loss, size, penalty, slope = numbers
        return _State(W, loss + penalty, gradient, slope, size, *curvature)

    def _multiply(self, state: _State, direction: RealArray) -> RealArray:
        """Multiply by the Hessian of the losses."""
        shards = self._samples.shards
        # Where blocks are far, a small Hessian is summed once, and multiplied with here.
        small = len(shards) > 1 and state.W.size <= _LARGEST_HESSIAN
        if state.curvature is not None:
            known = [state.curvature]
        else:
            if self._curvature is None or self._curvature[0] is not state:
                call = shards.reduce if small else shards.hold
                function = _whole_hessian if small else _curvature
                found = call(function, self._loss, state.W, parts=self._parts)
                self._curvature = state, found
            known = self._curvature[1]
        if small:
            return np.tensordot(known, direction, axes=2)
        return shards.reduce(_product, self._loss, direction, parts=[*self._parts, known])

    def _step(self, state: _State, goal: float) -> RealArray:
        """Solve for the Newton step as far as it pays: the better, the closer the end is."""
        enough = max(min(0.1, state.slope**0.5) * state.slope, 0.1 * goal)
        # Curvature where a hinge has none, gone at the minimum.
        damping = _DAMPING * min(1.0, state.slope / max(self._origin.slope, _TINY))
        scale = max(state.size, 1e-6) * self._spread + 2 * np.diag(self._penalty) + damping
        scale = np.maximum(scale, 1e-12 * scale.max())  # about the diagonal of the Hessian
        solve = self._solve_compiled if self._compiled else self._solve
        step = solve(state, scale, damping, enough)
        return step if step.any() else -state.gradient / scale

    def _can_be_compiled(self) -> bool:
        whole = self._samples.shards.whole
        return (
            type(self._loss) is SoftmaxLoss
            and whole is not None
            and whole.engine.name != "reference"
            and not on_device(self._parts[1][0][0])
            and is_compiled()
        )

    def _solve_compiled(
        self, state: _State, scale: RealArray, damping: float, enough: float
    ) -> RealArray:
        (targets,), (turned,) = self._parts
        return newton_step(
            turned[1],
            state.curvature,
            targets[1],
            state.gradient,
            scale,
            self._bias,
            penalty=self._gamma,
            damping=damping,
            enough=enough,
            least_gain=self._least_gain,
            most_products=_CG_STEPS,
        )

    def _solve(self, state: _State, scale: RealArray, damping: float, enough: float) -> RealArray:
        """Solve by conjugate gradients."""
        step = np.zeros_like(state.W)
        residual = -state.gradient
        direction = residual / scale
        power = float(np.vdot(residual, direction))
        all_gain = 0.0
        for k in range(1, _CG_STEPS + 1):
            product = self._multiply(state, direction) + 2 * direction @ self._penalty
            product = product + damping * direction
            curvature = float(np.vdot(direction, product))
            if curvature <= 0:
                break
            length = power / curvature
            gain = 0.5 * length * power
            all_gain += gain
            step = step + length * direction
            residual = residual - length * product
            z = residual / scale
            size, following = _fetch(np.linalg.norm(residual), np.vdot(residual, z))
            if size <= enough or k * gain <= self._least_gain * all_gain:
                break
            direction, power = z + following / power * direction, following
        return step

    def _search(self, state: _State, step: RealArray) -> _State | None:
        """Find the best of the points tried along a step; None if none beats the start."""
        rounding = _ROUNDING * abs(state.value)
        steepness = abs(float(np.vdot(step, state.gradient)))
        best = None
        low, high = 0.0, 1.0
        length = 1.0
        for _ in range(_BISECTIONS):
            trial = self._evaluate(state.W + length * step)
            slope = float(np.vdot(step, trial.gradient))
            # At the level of rounding the gradient says more than the value.
            flat = abs(trial.value - state.value) <= rounding
            better = trial.slope < state.slope if flat else trial.value < state.value
            if better and (best is None or trial.value < best.value):
                best = trial
            if slope <= 0 or (best is not None and abs(slope) <= _FLAT * steepness):
                if length == 1.0 or best is not None:
                    return best
                low = length
            else:
                high = length
            length = 0.5 * (low + high)
        return best


def _fetch(*numbers: Any) -> list[float]:
    """Bring numbers to the host; from a device, all at once."""
    if isinstance(numbers[-1], float):  # NumPy's are
        return list(map(float, numbers))
    found: list[float] = to_host(np.stack(numbers)).tolist()
    return found


# --- what blocks compute: they get (targets, weights), then the turned design -------------------


def _sums(
    _: Block, targets: Targets, turned: Any, loss: Loss, W: RealArray, keep: bool
) -> tuple[Any, ...]:
    """Sum losses and typical second derivatives, then gradients; keep the second, if asked."""
    (wanted, weights), design = targets, turned[0]
    there = to_device_of(W, design)

    def sums(rows: slice) -> tuple[RealArray, RealArray, Any]:
        expansion = loss.expand(design[rows] @ there.T, wanted[rows])
        own = weights[rows]
        both = np.stack([own @ expansion.losses, own @ expansion.sizes])
        return both, (own[:, None] * expansion.slopes).T @ design[rows], expansion.curvature

    *summed, curvature = zip(*_over_rows(sums, design, there), strict=True)
    return *(to_device_of(sum(one), W) for one in summed), *([curvature] if keep else [])


def _curvature(_: Block, targets: Targets, turned: Any, loss: Loss, W: RealArray) -> Any:
    wanted, design = targets[0], turned[0]
    W = to_device_of(W, design)
    expand = lambda rows: loss.expand(design[rows] @ W.T, wanted[rows]).curvature  # noqa: E731
    return _over_rows(expand, design, W)


def _product(
    _: Block, targets: Targets, turned: Any, curvature: Any, loss: Loss, direction: RealArray
) -> RealArray:
    # Towards a rough head, directions of few digits lead as well, in half of the time.
    weights, narrow = targets[1], turned[1]
    there = to_device_of(direction, narrow).astype(narrow.dtype, copy=False)

    def product(rows: slice) -> RealArray:
        known = curvature[(rows.start or 0) // _ROWS]
        curved = weights[rows, None] * loss.hessian_product(known, narrow[rows] @ there.T)
        return curved.astype(narrow.dtype, copy=False).T @ narrow[rows]

    products = _over_rows(product, narrow, there)
    return to_device_of(sum(products[1:], start=products[0]), direction)


def _over_rows(
    function: Callable[[slice], Result], design: RealArray, W: RealArray
) -> list[Result]:
    """Call a function for rows of a design, side by side where a product with a head takes long."""
    if on_device(design) or len(design) * W.size < _MUCH:
        return [function(slice(None))]
    return map_rows(function, len(design), _ROWS)


def _whole_hessian(_: Block, targets: Targets, turned: Any, loss: Loss, W: RealArray) -> RealArray:
    """Hessian in the head, shape (n_outputs, n_columns, n_outputs, n_columns)."""
    (wanted, weights), design = targets, turned[0]
    expansion = loss.expand(design @ W.T, wanted)
    n_outputs, n_columns = W.shape
    hessian = np.empty((n_outputs, n_columns, n_outputs, n_columns))
    for k in range(n_outputs):
        curved = loss.hessian_product(
            expansion.curvature, np.broadcast_to(np.eye(n_outputs)[k], wanted.shape)
        )
        for other in range(k + 1):
            part = design.T @ ((weights * curved[:, other])[:, None] * design)
            hessian[k, :, other], hessian[other, :, k] = part, part
    return hessian
