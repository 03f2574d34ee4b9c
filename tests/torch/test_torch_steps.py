"""`DivergenceLayer.stepping`: bounded steps, whatever the optimizer, units and condition."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from divlearn.spd import check_spd  # noqa: E402
from divlearn.torch import (  # noqa: E402
    DivergenceLayer,
)

SGD, Adam, LBFGS = torch.optim.SGD, torch.optim.Adam, torch.optim.LBFGS


def covariances(seed: int, condition: float, n: int, d: int = 4) -> torch.Tensor:
    """Wishart matrices whose mean has a given condition."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.standard_normal((d, d)))[0]
    samples = basis * np.geomspace(1, condition**-0.5, d) @ rng.standard_normal((n, d, 4 * d))
    return torch.from_numpy(samples @ samples.swapaxes(1, 2) / (4 * d))


def step(layer, optimizer, X, sign=1.0):
    optimizer.zero_grad()
    loss = sign * layer(X).mean()
    loss.backward()
    with layer.stepping():
        optimizer.step()
    return loss.item()


def ratios(before, after):
    """Factors by which variances changed in any direction."""
    return torch.linalg.eigvals(torch.linalg.solve(before, after)).real


@pytest.mark.parametrize(("make", "rate"), [(Adam, 0.1), (SGD, 1e6)], ids=["fast", "wild"])
def test_atoms_stay_inside_the_cone(make, rate):
    """One atom for each of two seeds and two conditions; every step is checked."""
    groups = [covariances(seed, c, n=4) for seed in range(2) for c in (1e4, 1e6)]
    X = torch.cat(groups)
    mine = torch.eye(len(groups), dtype=torch.float64).repeat_interleave(4, dim=0)
    layer = DivergenceLayer.from_atoms(torch.stack([3 * group[0] for group in groups]))
    optimizer = make(layer.parameters(), lr=rate)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = (layer(X) * mine).sum(dim=0)  # of every atom to its own matrices
        loss.sum().backward()
        losses.append(loss.detach())
        with layer.stepping():
            optimizer.step()
        check_spd(layer.atoms.detach().numpy())
    if rate <= 0.1:
        assert (losses[20] < losses[0]).all()
        assert (losses[-1] < 0.4 * losses[0]).all()


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1}),
        (torch.optim.AdamW, {"lr": 10.0, "weight_decay": 1.0}),
        (torch.optim.RMSprop, {"lr": 1.0}),
    ],
)
@pytest.mark.parametrize("sign", [1.0, -1.0], ids=["to the data", "away from it"])
def test_a_step_is_bounded(make, options, sign):
    X = covariances(0, 1e6, n=6)
    layer = DivergenceLayer.from_atoms(X[:2], "stein")
    optimizer = make(layer.parameters(), **options)
    for _ in range(4):  # which do not reach the border
        before = layer.atoms.detach().clone()
        step(layer, optimizer, X, sign)
        found = ratios(before, layer.atoms.detach()).log().abs().max()
        assert found <= 1 + 1e-6
        check_spd(layer.atoms.detach().numpy())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_pushed_against_the_border_atoms_stop(dtype):
    """A gradient that always shrinks one direction: the condition stops growing."""
    layer = DivergenceLayer.from_atoms(torch.eye(3, dtype=dtype).repeat(2, 1, 1))
    optimizer = SGD([layer.atoms], lr=1.0)
    shrink = torch.ones(3, 3, dtype=dtype)
    for _ in range(60):
        layer.atoms.grad = torch.linalg.solve(layer.atoms.detach(), shrink.expand(2, 3, 3))
        with layer.stepping():
            optimizer.step()
        check_spd(layer.atoms.detach().numpy())
    least = torch.linalg.eigvalsh(layer.atoms.detach().double())[:, 0]
    floor = torch.finfo(dtype).eps ** 0.5
    assert ((least > 0.2 * floor) & (least < 5 * floor)).all()


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_variances_stay_in_range(sign):
    layer = DivergenceLayer.from_atoms(torch.eye(2).repeat(1, 1, 1))
    optimizer = SGD([layer.atoms], lr=1.0)
    for _ in range(120):  # e^120 is beyond float32
        layer.atoms.grad = sign * torch.diag_embed(
            1 / layer.atoms.detach().diagonal(dim1=1, dim2=2)
        )
        with layer.stepping():
            optimizer.step()
    logarithm = layer.atoms.detach().diagonal(dim1=1, dim2=2).log()
    assert ((-sign * logarithm > 43) & (-sign * logarithm < 45)).all()
    assert torch.isfinite(layer(torch.eye(2)[None])).all()


def test_atoms_that_start_near_the_border_are_not_moved_away_from_it():
    """An atom whose condition is beyond the bound may stay there, but not go further."""
    B = torch.tensor([[[1.0, 1 - 1e-11], [1 - 1e-11, 1.0]]], dtype=torch.float64)
    layer = DivergenceLayer.from_atoms(B)
    optimizer = SGD([layer.atoms], lr=0.1)
    layer.atoms.grad = torch.linalg.inv(B)  # shrinks the atom as a whole
    with layer.stepping():
        optimizer.step()
    assert torch.allclose(layer.atoms, B * np.exp(-0.1), rtol=1e-9, atol=0)
    layer.atoms.grad = torch.zeros_like(B)
    before = layer.atoms.detach().clone()
    with layer.stepping():
        optimizer.step()
    assert torch.equal(layer.atoms, before)


def test_plain_sgd_does_not_depend_on_the_basis():
    """Data and atoms M X M^T, M B M^T lead to M B' M^T, also where steps are shortened."""
    X = covariances(1, 1e2, n=8)
    M = torch.from_numpy(np.random.default_rng(2).standard_normal((4, 4)))
    for rate in (0.1, 100.0):
        layers = []
        for T in (torch.eye(4, dtype=torch.float64), M):
            layer = DivergenceLayer.from_atoms(T @ X[:2] @ T.mT)
            optimizer = SGD(layer.parameters(), lr=rate)
            for _ in range(3):
                step(layer, optimizer, T @ X @ T.mT)
            layers.append(layer)
        here, there = layers
        right = M @ here.atoms @ M.mT
        assert torch.allclose(there.atoms, right, rtol=1e-8, atol=1e-8 * right.abs().max().item())
        assert torch.allclose(there.alpha, here.alpha, rtol=1e-8)


def test_adam_does_not_depend_on_units():
    """Volts or microvolts: the same steps."""
    X = covariances(1, 1e4, n=8)
    found = []
    for unit in (1.0, 2.0**-40):
        layer = DivergenceLayer.from_atoms(unit * X[:2])
        optimizer = Adam(layer.parameters(), lr=0.05)
        for _ in range(5):
            step(layer, optimizer, unit * X)
        found.append(layer.atoms.detach() / unit)
    assert torch.allclose(*found, rtol=1e-9)


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_optimizers_that_evaluate_the_loss_in_their_step(search):
    """LBFGS finds the centroid of (0, 1), the arithmetic mean."""
    X = covariances(3, 1e4, n=8)
    layer = DivergenceLayer.from_atoms(X[:1], "burg")
    rate = 0.5 if search is None else 1.0
    optimizer = LBFGS([layer.atoms], lr=rate, tolerance_change=0, line_search_fn=search)

    def closure():
        optimizer.zero_grad()
        loss = layer(X).mean()
        loss.backward()
        return loss

    for _ in range(8):
        with layer.stepping():
            optimizer.step(closure)
    assert (ratios(X.mean(dim=0)[None], layer.atoms.detach()) - 1).abs().max() < 1e-5


def test_a_step_that_fails_changes_nothing():
    X = covariances(0, 1e2, n=4)
    layer = DivergenceLayer.from_atoms(X[:2])
    layer(X).sum().backward()
    kept = {name: value.clone() for name, value in layer.state_dict().items()}
    gradient = layer.atoms.grad.clone()

    def step_and_fail():
        SGD(layer.parameters(), lr=0.1).step()
        raise KeyError

    with pytest.raises(KeyError), layer.stepping():
        step_and_fail()
    for name, message in (("atoms", r"moved atoms\[1\] to NaN"), ("alpha", "moved alpha to NaN")):
        with (
            pytest.raises(
                ValueError, match=f"the optimizer {message} or infinity, .* undone; lower"
            ),
            layer.stepping(),
            torch.no_grad(),
        ):
            getattr(layer, name)[1] = float("nan")
    assert all(torch.equal(value, kept[name]) for name, value in layer.state_dict().items())
    assert torch.allclose(layer.atoms.grad, gradient, rtol=1e-9)
    with pytest.raises(RuntimeError, match="active already"), layer.stepping(), layer.stepping():
        pass
    assert torch.equal(layer.atoms, kept["atoms"])


def test_gradients_cleared_inside_stay_cleared():
    X = covariances(0, 1e2, n=4)
    layer = DivergenceLayer.from_atoms(X[:2])
    for to_none in (True, False):
        layer(X).sum().backward()
        optimizer = SGD(layer.parameters(), lr=0.1)
        with layer.stepping():
            optimizer.step()
            optimizer.zero_grad(set_to_none=to_none)
        assert layer.atoms.grad is None if to_none else not layer.atoms.grad.any()


def test_who_forgets_stepping_is_told():
    X = covariances(0, 1e6, n=4)
    layer = DivergenceLayer.from_atoms(X[:2])
    optimizer = SGD(layer.parameters(), lr=1.0)
    layer(X).sum().backward()
    optimizer.step()
    with pytest.raises(ValueError, match=r"atoms\[0\]") as caught:
        layer(X)
    assert "`stepping`" in caught.value.__notes__[0]
    with pytest.raises(ValueError, match=r"atoms\[0\] is not positive definite before the step"):
        layer.stepping().__enter__()
