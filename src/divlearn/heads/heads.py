"""Linear heads: ridge in closed form, other losses by Newton's method.

Samples lie in blocks, in memory, on a device or on workers; sums over them come to the host.
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
_FLAT = 0.3  # slope along a step, relative to the initial slope, at which a line search ends
_ROUNDING = 1e-14
_LAST_GAIN = 100  # root of the relative gain of the last step, in units of the tolerance
_SINGLE = 1e-5  # least tolerance for which directions are computed in single precision
_LEAST_GAIN = 0.3  # gain of a rough step, relative to the mean gain before, at which CG stops
_NEGLIGIBLE = 0.05  # variance relative to the penalty, below which weights are negligible
_DAMPING = 1e-2
_TINY = float(np.finfo(float).tiny)
_LARGEST_HESSIAN = 150  # entries of a head, up to which a Hessian costs at most twenty products
_ROWS = 1024  # of a design, per thread
_THREADED_WORK = 1 << 24  # multiplications of a product, above which threads make it faster


def solve_head(
    loss: Loss, samples: Samples, gamma: float, warm: Head | None = None
) -> tuple[Head, float]:
    """Return the head that minimises the objective, and its value."""
    if loss.quadratic:
        head = _ridge_head(*samples.centre, *samples.products, gamma)
        return head, objective_of(loss, samples, head, gamma)
    if warm is not None and warm[0].shape[1] != len(samples.centre[0]):
        warm = None
    value = np.inf
    for stage in loss.stages():
        warm, value = _Newton(stage, samples, gamma).minimize(warm)
    assert warm is not None
    return warm, value


def is_rough(loss: Loss) -> bool:
    """Whether heads need so few digits that directions in single precision do."""
    return loss.tolerance >= _SINGLE


def solve_heads(loss: Loss, shards: Shards, targets: Parts, stack: RealArray, gamma: float) -> Head:
    """Solve for the head of each array of features in a stack; weights and biases are stacked."""
    if loss.quadratic:
        samples = Samples(shards, targets, [stack], loss.bias)
        (means, Y_mean), (grams, crosses) = samples.centre, samples.products
        heads = [
            _ridge_head(mean, Y_mean, gram, cross, gamma)
            for mean, gram, cross in zip(means, grams, crosses, strict=True)
        ]
    else:
        all_samples = (Samples(shards, targets, [features], loss.bias) for features in stack)
        heads = [solve_head(loss, samples, gamma)[0] for samples in all_samples]
    weights, biases = zip(*heads, strict=True)
    return np.stack(weights), np.stack(biases)


def _ridge_head(
    mean: RealArray, Y_mean: RealArray, gram: RealArray, cross: RealArray, gamma: float
) -> Head:
    penalized = gram + 2 * gamma * np.eye(len(gram))
    try:
        W = cho_solve(cho_factor(penalized), cross).T
    except LinAlgError:
        W = np.linalg.lstsq(penalized, cross, rcond=None)[0].T
    return W, Y_mean - W @ mean


def objective_of(loss: Loss, samples: Samples, head: Head, gamma: float) -> float:
    """Weighted sum of the losses of a head, plus its penalty."""
    parts = [samples.targets, samples.features]
    losses = float(samples.shards.reduce(_losses, loss, head, parts=parts))
    return losses + gamma * float((head[0] ** 2).sum())


def scores_of(head: Head, features: RealArray) -> RealArray:
    """Scores of some samples, shape (n_samples, n_outputs); heads and features may be stacks."""
    weights, bias = (to_device_of(array, features) for array in head)
    return features @ weights.mT + bias[..., None, :]


def slopes_of(targets: Targets, features: RealArray, loss: Loss, head: Head) -> RealArray:
    """Weighted gradients of the losses of some samples in their scores."""
    Y, weights = targets
    return weights[:, None] * loss.expand(scores_of(head, features), Y).slopes


def _losses(_: Block, targets: Targets, features: RealArray, loss: Loss, head: Head) -> float:
    Y, weights = targets
    return float(weights @ loss.expand(scores_of(head, features), Y).losses)


@dataclass(frozen=True, eq=False)
class _State:
    W: RealArray
    value: float
    gradient: RealArray
    gradient_norm: float
    size: float  # a typical second derivative in the scores
    curvature: Any = None  # second derivatives, for one block in memory


class _Newton:
    """Newton's method with conjugate gradients, in components where Hessians are nearly diagonal.

    Arrays stay on the device of the design; only numbers for decisions come to the host.
    """

    def __init__(self, loss: Loss, samples: Samples, gamma: float) -> None:
        self._loss, self._samples, self._gamma = loss, samples, gamma
        self._n_features, n_outputs = map(len, samples.centre)
        rough, self._is_softmax = is_rough(loss), isinstance(loss, SoftmaxLoss)
        # Steps must not stop early if the curvature jumps, as that of hinges does.
        self._least_gain = _LEAST_GAIN if rough and self._is_softmax else 0.0
        squares, basis = samples.components
        left_out = np.searchsorted(squares, _NEGLIGIBLE * gamma) if rough else 0
        left_out = min(int(left_out), len(squares) - 1)
        squares, basis = squares[left_out:], basis[:, left_out:]
        bias = basis[self._n_features :].sum(axis=0)  # the unpenalised direction
        self._parts = samples.rotate(left_out, rough)
        design = squares if samples.shards.whole is None else self._parts[1][0][0]
        self._squares, self._basis, self._bias, zeros = (
            to_device_of(array, design)
            for array in (squares, basis, bias, np.zeros((n_outputs, len(squares))))
        )
        unit = np.diag(np.ones_like(self._bias))
        self._penalty = gamma * (unit - np.outer(self._bias, self._bias))
        self._curvature: tuple[_State, Any] | None = None  # of blocks that are not in memory
        self._compiled = self._can_be_compiled()
        self._origin = self._evaluate(zeros)

    def minimize(self, warm: Head | None) -> tuple[Head, float]:
        origin = state = self._origin
        if warm is not None:
            start = np.concatenate([warm[0], warm[1][:, None]], axis=1)[:, : len(self._basis)]
            warm_state = self._evaluate(to_device_of(start, self._basis) @ self._basis)
            state = warm_state if warm_state.value <= origin.value else origin
        goal = self._loss.tolerance * max(origin.gradient_norm, _TINY)
        for _ in range(_NEWTON_STEPS):
            check_finite(state.gradient_norm, "the size of the gradient", "of a head")
            if state.gradient_norm <= goal:
                break
            following = self._search(state, self._step(state, goal))
            if following is None:
                break
            gain, state = state.value - following.value, following
            # The next step gains far less: near the minimum, the error of the objective is
            # proportional to the square of the gradient.
            if gain <= (_LAST_GAIN * self._loss.tolerance) ** 2 * state.value:
                break
        W = to_host(state.W @ self._basis.T)
        head = W[:, : self._n_features], W[:, self._n_features :].sum(axis=1)
        return head, state.value

    def _evaluate(self, W: RealArray) -> _State:
        if self._compiled:
            (targets,), (designs,) = self._parts
            loss, gradient, size, *curvature = softmax_sums(designs[0], targets[0], targets[1], W)
            sums: Any = loss, size
        else:
            shards = self._samples.shards
            args = self._loss, W, shards.whole is not None
            sums, gradient, *curvature = shards.reduce(_sums, *args, parts=self._parts)
        penalized = W @ self._penalty
        gradient = gradient + 2 * penalized
        numbers = _fetch(*sums, np.vdot(penalized, W), np.linalg.norm(gradient))
        loss, size, penalty, norm = numbers
        return _State(W, loss + penalty, gradient, norm, size, *curvature)

    def _multiply(self, state: _State, direction: RealArray) -> RealArray:
        """Multiply by the Hessian of the losses."""
        shards = self._samples.shards
        # The Hessian of several blocks, if small, is summed once and multiplied on the host.
        small = len(shards) > 1 and state.W.size <= _LARGEST_HESSIAN
        if state.curvature is not None:
            curvature = [state.curvature]
        else:
            if self._curvature is None or self._curvature[0] is not state:
                call = shards.reduce if small else shards.hold
                function = _whole_hessian if small else _curvature
                self._curvature = state, call(function, self._loss, state.W, parts=self._parts)
            curvature = self._curvature[1]
        if small:
            return np.tensordot(curvature, direction, axes=2)
        return shards.reduce(_product, self._loss, direction, parts=[*self._parts, curvature])

    def _step(self, state: _State, goal: float) -> RealArray:
        """Solve for the Newton step, the more accurately, the smaller the gradient."""
        norm = state.gradient_norm
        enough = max(min(0.1, norm**0.5) * norm, 0.1 * goal)
        # Replaces the curvature where a hinge has none, and vanishes at the minimum.
        damping = _DAMPING * min(1.0, norm / max(self._origin.gradient_norm, _TINY))
        scale = self._diagonal(state) + 2 * np.diag(self._penalty) + damping
        scale = np.maximum(scale, 1e-12 * scale.max())  # about the diagonal of the Hessian
        solve = self._solve_compiled if self._compiled else self._solve
        step = solve(state, scale, damping, enough)
        if not step.any():
            return -state.gradient / scale
        # What is common to all scores changes no loss of softmax.
        return step - step.mean(axis=0) if self._is_softmax else step

    def _diagonal(self, state: _State) -> RealArray:
        """Return the diagonal of the Hessian of the losses; in general, about that."""
        if not self._is_softmax or state.curvature is None:
            return max(state.size, 1e-6) * self._squares
        (targets,), (designs,) = self._parts
        p = state.curvature if self._compiled else np.concatenate(state.curvature)
        curved = targets[1][:, None] * p * (1 - p)
        return curved.astype(designs[1].dtype).T @ designs[1] ** 2

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
        (targets,), (designs,) = self._parts
        return newton_step(
            designs[1],
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
        """Solve by preconditioned conjugate gradients."""
        step = np.zeros_like(state.W)
        residual = -state.gradient
        direction = residual / scale
        power = float(np.vdot(residual, direction))
        total_gain = 0.0
        for k in range(1, _CG_STEPS + 1):
            product = self._multiply(state, direction) + 2 * direction @ self._penalty
            product = product + damping * direction
            curvature = float(np.vdot(direction, product))
            if curvature <= 0:
                break
            length = power / curvature
            gain = 0.5 * length * power
            total_gain += gain
            step = step + length * direction
            residual = residual - length * product
            z = residual / scale
            norm, next_power = _fetch(np.linalg.norm(residual), np.vdot(residual, z))
            if norm <= enough or k * gain <= self._least_gain * total_gain:
                break
            direction, power = z + next_power / power * direction, next_power
        return step

    def _search(self, state: _State, step: RealArray) -> _State | None:
        """Return the best of the points tried along a step; None if none beats the start."""
        rounding = _ROUNDING * abs(state.value)
        steepness = abs(float(np.vdot(step, state.gradient)))
        best = None
        low, high = 0.0, 1.0
        length = 1.0
        for _ in range(_BISECTIONS):
            trial = self._evaluate(state.W + length * step)
            slope = float(np.vdot(step, trial.gradient))
            # At the level of rounding errors, the gradient is more accurate than the value.
            flat = abs(trial.value - state.value) <= rounding
            better = (
                trial.gradient_norm < state.gradient_norm if flat else trial.value < state.value
            )
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
    if isinstance(numbers[-1], float):  # as NumPy's numbers are
        return list(map(float, numbers))
    host: list[float] = to_host(np.stack(numbers)).tolist()
    return host


# --- functions of blocks: arguments are (targets, weights), then the rotated designs --------------


def _sums(
    _: Block, targets: Targets, designs: Any, loss: Loss, W: RealArray, keep: bool
) -> tuple[Any, ...]:
    """Sum losses with typical second derivatives, and gradients; keep the curvature if asked."""
    (Y, weights), design = targets, designs[0]
    W_there = to_device_of(W, design)

    def sums(rows: slice) -> tuple[RealArray, RealArray, Any]:
        w, expansion = weights[rows], loss.expand(design[rows] @ W_there.T, Y[rows])
        numbers = np.stack([w @ expansion.losses, w @ expansion.sizes])
        return numbers, (w[:, None] * expansion.slopes).T @ design[rows], expansion.curvature

    numbers, gradients, curvature = zip(*_over_rows(sums, design, W_there), strict=True)
    totals = to_device_of(sum(numbers), W), to_device_of(sum(gradients), W)
    return (*totals, curvature) if keep else totals


def _curvature(_: Block, targets: Targets, designs: Any, loss: Loss, W: RealArray) -> Any:
    Y, design = targets[0], designs[0]
    W = to_device_of(W, design)
    return _over_rows(lambda rows: loss.expand(design[rows] @ W.T, Y[rows]).curvature, design, W)


def _product(
    _: Block, targets: Targets, designs: Any, curvature: Any, loss: Loss, direction: RealArray
) -> RealArray:
    # A rough head needs directions in single precision only, which halves the time.
    weights, design = targets[1], designs[1]
    W = to_device_of(direction, design).astype(design.dtype, copy=False)

    def product(rows: slice) -> RealArray:
        row_curvature = curvature[(rows.start or 0) // _ROWS]
        curved = weights[rows, None] * loss.hessian_product(row_curvature, design[rows] @ W.T)
        return curved.astype(design.dtype, copy=False).T @ design[rows]

    products = _over_rows(product, design, W)
    return to_device_of(sum(products[1:], start=products[0]), direction)


def _over_rows(
    function: Callable[[slice], Result], design: RealArray, W: RealArray
) -> list[Result]:
    """Call a function of rows, in threads if the product of the design and a head is large."""
    if on_device(design) or len(design) * W.size < _THREADED_WORK:
        return [function(slice(None))]
    return map_rows(function, len(design), _ROWS)


def _whole_hessian(_: Block, targets: Targets, designs: Any, loss: Loss, W: RealArray) -> RealArray:
    """Hessian in the head, shape (n_outputs, n_columns, n_outputs, n_columns)."""
    (Y, weights), design = targets, designs[0]
    expansion = loss.expand(design @ W.T, Y)
    n_outputs, n_columns = W.shape
    hessian = np.empty((n_outputs, n_columns, n_outputs, n_columns))
    for k in range(n_outputs):
        direction = np.broadcast_to(np.eye(n_outputs)[k], Y.shape)
        curved = loss.hessian_product(expansion.curvature, direction)
        for other in range(k + 1):
            product = design.T @ ((weights * curved[:, other])[:, None] * design)
            hessian[k, :, other], hessian[other, :, k] = product, product
    return hessian
