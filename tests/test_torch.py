"""The torch layer: the engines' values, gradients by differences, steps on the manifold."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from conftest import EPS, wishart

torch = pytest.importorskip("torch")

from divlearn.engines import cuda_problem, get_engine  # noqa: E402
from divlearn.spd import exp_map  # noqa: E402
from divlearn.torch import (  # noqa: E402
    DivergenceLayer,
    encode,
    exponential_step,
    retract_,
    riemannian_gradient,
)


@pytest.fixture(params=["cpu", "cuda"] if cuda_problem() is None else ["cpu"])
def device(request) -> str:
    return request.param


def make(d: int, n: int, n_atoms: int, device: str = "cpu", seed: int = 0):
    rng = np.random.default_rng(seed)
    X, B = (torch.from_numpy(wishart(rng, k, d, 3 * d)).to(device) for k in (n, n_atoms))
    alpha, beta = (torch.from_numpy(rng.uniform(0.3, 1.5, n_atoms)).to(device) for _ in range(2))
    return X, B, alpha, beta


def symmetric(tensor):
    """Perturbations of a symmetric matrix that stay symmetric."""
    return 0.5 * (tensor + tensor.mT)


@pytest.mark.parametrize("d", [2, 5, 11])
def test_values_are_those_of_the_engine(device, d):
    X, B, alpha, beta = make(d, 7, 3, device)
    values = encode(X, B, alpha, beta)
    assert values.device == X.device
    assert values.dtype == torch.float64
    arrays = (tensor.cpu().numpy() for tensor in (X, B, alpha, beta))
    right = get_engine("reference").encode(*arrays)
    np.testing.assert_allclose(values.cpu().numpy(), right, rtol=1e-11)


@pytest.mark.parametrize("point", [None, (0.0, 0.0), (0.5, 0.5), (0.0, 1.0), (1.0, 0.0)])
def test_gradcheck(device, point):
    X, B, alpha, beta = make(3, 4, 3, device)
    if point is not None:
        alpha, beta = (torch.full_like(alpha, value) for value in point)
    tensors = [tensor.requires_grad_() for tensor in (X, B, alpha, beta)]

    def function(X, B, alpha, beta):
        return encode(symmetric(X), symmetric(B), alpha, beta)

    if point is None:  # differences in parameters need room on both sides
        assert torch.autograd.gradcheck(function, tensors)
    assert torch.autograd.gradcheck(lambda X, B: function(X, B, alpha, beta), tensors[:2])


def test_gradcheck_of_several_pairs_and_of_numbers(device):
    X, B, _, _ = make(3, 4, 2, device)
    pairs = torch.tensor([[0.4, 1.0, 0.7], [0.9, 0.3, 0.6]], dtype=torch.float64, device=device)
    one = torch.tensor(0.8, dtype=torch.float64, device=device, requires_grad=True)
    inputs = (X.requires_grad_(), B.requires_grad_(), pairs.requires_grad_(), one)

    def function(X, B, alpha, beta):
        return encode(symmetric(X), symmetric(B), alpha, beta)

    assert function(*inputs).shape == (4, 2, 3)
    assert torch.autograd.gradcheck(function, inputs)


def test_only_what_is_asked_for_is_computed():
    X, B, alpha, beta = make(3, 4, 2)
    B.requires_grad_()
    encode(X, B, alpha, beta).sum().backward()
    assert X.grad is None
    assert alpha.grad is None
    assert torch.equal(B.grad, B.grad.mT)


def test_float32(device):
    X, B, alpha, beta = (tensor.float() for tensor in make(4, 6, 2, device))
    B.requires_grad_()
    values = encode(X, B, alpha, beta)
    assert values.dtype == torch.float32
    values.sum().backward()
    assert B.grad.dtype == torch.float32
    exact = encode(X.double(), B.detach().double(), alpha.double(), beta.double())
    assert torch.allclose(values.double(), exact, rtol=1e-5)


def test_a_gradient_of_a_gradient_is_refused():
    X, B, alpha, beta = make(3, 2, 2)
    B.requires_grad_()
    loss = (encode(X, B, alpha, beta) ** 2).sum()
    (gradient,) = torch.autograd.grad(loss, B, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


# --- the module -----------------------------------------------------------------------------------


def test_layer_learns_atoms_and_parameters(device):
    """Atoms that differ from the data move to it, on the manifold all the way."""
    X, B, _, _ = make(4, 30, 2, device)
    layer = DivergenceLayer(10 * B, 0.3, 0.9)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.05)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = layer(X).mean()
        loss.backward()
        with layer.stepping():
            optimizer.step()
        losses.append(loss.item())
        assert (torch.linalg.eigvalsh(layer.atoms) > 0).all()
        assert (layer.alpha >= 0).all()
        assert (layer.beta >= 0).all()
    assert losses[-1] < 0.6 * losses[0]
    assert layer.state_dict().keys() == {"atoms", "alpha", "beta"}


def test_layer_is_the_last_one_of_a_network(device):
    """Gradients reach the layers below, whose covariances it sees."""
    torch.manual_seed(0)
    below = torch.nn.Linear(6, 3, dtype=torch.float64, device=device)
    layer = DivergenceLayer(make(3, 1, 4, device)[1], learn_parameters=False)
    head = torch.nn.Linear(4, 2, dtype=torch.float64, device=device)
    series = torch.randn(5, 40, 6, dtype=torch.float64, device=device)

    def loss():
        hidden = below(series)
        covariances = hidden.mT @ hidden / 40 + 1e-3 * torch.eye(3, device=device)
        return (head(layer(covariances)) ** 2).mean()

    value = loss()
    value.backward()
    assert [name for name, _ in layer.named_parameters()] == ["atoms"]
    direction = below.weight.grad / below.weight.grad.norm()
    h = EPS ** (1 / 3)
    sides = []
    for sign in (1, -1):
        with torch.no_grad():
            below.weight += sign * h * direction
            sides.append(loss().item())
            below.weight -= sign * h * direction
    difference = (sides[0] - sides[1]) / (2 * h)
    assert difference == pytest.approx(below.weight.grad.norm().item(), rel=1e-6)


def test_layer_pickles_and_tells_its_size():
    layer = DivergenceLayer(make(3, 1, 4)[1])
    assert repr(layer) == "DivergenceLayer(n_atoms=4, d=3)"
    other = DivergenceLayer(torch.eye(3, dtype=torch.float64).repeat(4, 1, 1))
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other.atoms, layer.atoms)


def test_errors():
    X, B, alpha, beta = make(3, 2, 2)
    with pytest.raises(ValueError, match=r"atoms has shape \(3, 3\), expected \(n_atoms, d, d\)"):
        DivergenceLayer(B[0])
    with pytest.raises(ValueError, match=r"alpha=-0.5 must be >= 0"):
        DivergenceLayer(B, -0.5)
    bad = X.clone()
    bad[1, 0, 0] = float("nan")
    with pytest.raises(ValueError, match=r"X\[1\] has a NaN entry"):
        encode(bad, B, alpha, beta)


# --- steps ----------------------------------------------------------------------------------------


def test_exponential_step_is_the_exponential_map():
    X, B, _, _ = make(4, 3, 3)
    tangent = symmetric(X - B)
    right = exp_map(B.numpy(), tangent.numpy())
    np.testing.assert_allclose(exponential_step(B, tangent).numpy(), right, rtol=1e-11, atol=1e-12)


def test_retraction_agrees_with_a_small_step():
    """Up to second order it is the step itself, and parameters are kept non-negative."""
    X, B, alpha, _ = make(4, 3, 3)
    step = 1e-5 * symmetric(X)
    after = B + step
    moved = retract_(after.clone(), B, alpha.sub_(0.7))
    assert (moved - after).norm() <= 10 * step.norm() ** 2 / torch.linalg.eigvalsh(B).min()
    assert (alpha >= 0).all()


def test_riemannian_gradient_is_the_steepest():
    """<grad, S>_B = tr(B^-1 grad B^-1 S) is the derivative along S."""
    X, B, _, _ = make(3, 2, 2)
    G, S = symmetric(X), symmetric(torch.flip(X, [0]))
    grad = riemannian_gradient(B, G)
    inverse = torch.linalg.inv(B)
    found = torch.einsum("nij,njk,nkl,nli->n", inverse, grad, inverse, S)
    np.testing.assert_allclose(found.numpy(), (G * S).sum(dim=(1, 2)).numpy(), rtol=1e-10)


def test_geoopt():
    geoopt = pytest.importorskip("geoopt", reason="geoopt is not installed")
    X, B, _, _ = make(3, 20, 2)
    layer = DivergenceLayer(5 * B, manifold=True)
    assert isinstance(layer.atoms, geoopt.ManifoldParameter)
    optimizer = geoopt.optim.RiemannianSGD(layer.parameters(), lr=0.05)
    first = layer(X).mean().item()
    for _ in range(20):
        optimizer.zero_grad()
        layer(X).mean().backward()
        optimizer.step()
    assert layer(X).mean().item() < first
    assert (torch.linalg.eigvalsh(layer.atoms) > 0).all()


def test_without_geoopt_the_error_says_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "geoopt", None)
    monkeypatch.setattr("divlearn.torch.layer.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"manifold=True needs geoopt; install it"):
        DivergenceLayer(make(3, 1, 2)[1], manifold=True)
