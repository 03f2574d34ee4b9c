"""The torch layer: the engines' values, derivatives by differences, what is refused."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from conftest import EPS, wishart

torch = pytest.importorskip("torch")

from divlearn.engines import cuda_problem, get_engine  # noqa: E402
from divlearn.torch import DivergenceLayer, encode  # noqa: E402
from divlearn.torch.second import _in_parameters  # noqa: E402


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
    X, B, alpha, beta = make(2, 2, 2, device)
    if point is not None:
        alpha, beta = (torch.full_like(alpha, value) for value in point)
    tensors = [tensor.requires_grad_() for tensor in (X, B, alpha, beta)]

    def function(X, B, alpha, beta):
        return encode(symmetric(X), symmetric(B), alpha, beta)

    if point is None:  # differences in parameters need room on both sides
        assert torch.autograd.gradcheck(function, tensors, fast_mode=True)
    else:
        assert torch.autograd.gradcheck(
            lambda X, B: function(X, B, alpha, beta), tensors[:2], fast_mode=True
        )


def test_gradcheck_of_several_pairs_and_of_numbers(device):
    X, B, _, _ = make(2, 3, 2, device)
    pairs = torch.tensor([[0.4, 1.0, 0.7], [0.9, 0.3, 0.6]], dtype=torch.float64, device=device)
    one = torch.tensor(0.8, dtype=torch.float64, device=device, requires_grad=True)
    inputs = (X.requires_grad_(), B.requires_grad_(), pairs.requires_grad_(), one)

    def function(X, B, alpha, beta):
        return encode(symmetric(X), symmetric(B), alpha, beta)

    assert function(*inputs).shape == (3, 2, 3)
    assert torch.autograd.gradcheck(function, inputs, fast_mode=True)


def test_float32(device):
    X, B, alpha, beta = (tensor.float() for tensor in make(4, 6, 2, device))
    B.requires_grad_()
    values = encode(X, B, alpha, beta)
    assert values.dtype == torch.float32
    values.sum().backward()
    assert B.grad.dtype == torch.float32
    exact = encode(X.double(), B.detach().double(), alpha.double(), beta.double())
    assert torch.allclose(values.double(), exact, rtol=1e-5)


@pytest.mark.parametrize("shape", [(0,), (0, 5), (5, 0)])
def test_no_matrices_give_no_divergences_and_no_gradients(device, shape):
    """As in the layers of torch."""
    _, B, alpha, beta = make(3, 1, 2, device)
    X = torch.zeros(*shape, 3, 3, dtype=torch.float64, device=device)
    tensors = [tensor.requires_grad_() for tensor in (X, B, alpha, beta)]
    values = encode(*tensors)
    assert values.shape == (*shape, 2)
    gradients = torch.autograd.grad(values.sum(), tensors, create_graph=True)
    second = torch.autograd.grad(gradients[1].square().sum(), tensors)
    for gradient, other, tensor in zip(gradients, second, tensors, strict=True):
        assert torch.equal(gradient, torch.zeros_like(tensor))
        assert torch.equal(other, torch.zeros_like(tensor))
    layer = DivergenceLayer(4, 3, [(0.5, 0.5), (0, 1)], dtype=torch.float32, device=device)
    found = layer(X.detach().float())
    assert (found.shape, found.dtype) == ((*shape, 8), torch.float32)
    found.sum().backward()
    assert not layer.atoms.grad.any()
    with pytest.raises(ValueError, match="not square"):
        encode(torch.zeros(0, 3, 4), B.detach().cpu().float(), 0.0, 0.0)


# --- second derivatives ---------------------------------------------------------------------------


@pytest.mark.parametrize("point", [None, (0.0, 0.0), (0.0, 1.0), (0.5, -0.2)])
def test_gradients_of_gradients(device, point):
    """Against differences, with a pair of equal matrices, whose eigenvalues are all the same."""
    X, B, alpha, beta = make(2, 2, 2, device)
    X[0] = B[1]
    if point is not None:  # differences in parameters need room on both sides
        alpha, beta = (torch.full_like(alpha, value) for value in point)
    inputs = [tensor.requires_grad_() for tensor in (X, B, alpha, beta)[: 2 if point else 4]]

    def function(X, B, alpha=alpha, beta=beta):
        return encode(symmetric(X), symmetric(B), alpha, beta)

    assert torch.autograd.gradgradcheck(function, inputs, fast_mode=True)


def test_gradients_of_gradients_of_several_pairs_and_of_numbers(device):
    X, B, _, _ = make(2, 2, 2, device)
    pairs = torch.tensor([[0.4, 1.0], [0.9, 0.3]], dtype=torch.float64, device=device)
    one = torch.tensor(0.8, dtype=torch.float64, device=device)
    inputs = [tensor.requires_grad_() for tensor in (X, B, pairs, one)]
    assert torch.autograd.gradgradcheck(
        lambda X, B, alpha, beta: encode(symmetric(X), symmetric(B), alpha, beta),
        inputs,
        fast_mode=True,
    )


def test_second_derivatives_of_the_affine_invariant_distance(device):
    """For numbers, d = 1, D = log(x/b)^2 / 2 has D_bb = (1 + log(x/b)) / b^2, D_xb = -1/(x b)."""
    x, b = 3.0, 2.0
    X, B = (torch.full((1, 1, 1), v, dtype=torch.float64, device=device) for v in (x, b))
    B.requires_grad_()
    X.requires_grad_()
    (slope,) = torch.autograd.grad(encode(X, B, 0.0, 0.0).sum(), B, create_graph=True)
    second = torch.autograd.grad(slope.sum(), (B, X))
    assert second[0].item() == pytest.approx((1 + np.log(x / b)) / b**2, rel=1e-13)
    assert second[1].item() == pytest.approx(-1 / (x * b), rel=1e-13)


def scalar_of_50_digits(t, alpha, beta):
    """The definition, and its limits on the axes and at the origin."""
    if alpha == 0 and beta == 0:
        return t**2 / 2
    if alpha == 0:
        return (mpmath.exp(beta * t) - 1 - beta * t) / beta**2
    if beta == 0:
        return (mpmath.exp(-alpha * t) - 1 + alpha * t) / alpha**2
    mixture = (alpha * mpmath.exp(beta * t) + beta * mpmath.exp(-alpha * t)) / (alpha + beta)
    return mpmath.log(mixture) / (alpha * beta)


@pytest.mark.parametrize("t", [-0.3, 7.0])
@pytest.mark.parametrize(
    ("alpha", "beta"), [(0.7, 1.3), (3.0, 2.0), (1e-9, 0.8), (0.0, 1.0), (0.0, 0.0), (8.0, 9.0)]
)
def test_second_derivatives_in_the_parameters(t, alpha, beta):
    """To rounding, also on the axes and at the origin, where the formula has no meaning."""
    found = _in_parameters(*(np.array([[value]]) for value in (t, alpha, beta)))
    with mpmath.workdps(100):
        h, a, b = mpmath.mpf("1e-14"), mpmath.mpf(alpha), mpmath.mpf(beta)
        # Off the limits by nothing that counts, so that differences see one formula.
        a, b = a + mpmath.mpf("1e-18"), b + mpmath.mpf("2e-18")

        def f(i, j):
            return scalar_of_50_digits(mpmath.mpf(t), a + i * h, b + j * h)

        right = (
            (f(1, 0) - 2 * f(0, 0) + f(-1, 0)) / h**2,
            (f(1, 1) - f(1, -1) - f(-1, 1) + f(-1, -1)) / (4 * h**2),
            (f(0, 1) - 2 * f(0, 0) + f(0, -1)) / h**2,
        )
    rate = 1 + (alpha + beta) * abs(t)
    np.testing.assert_allclose(np.ravel(found), [float(r) for r in right], rtol=20 * EPS * rate)


def test_second_derivatives_of_float32_are_those_of_float64():
    found = []
    for dtype in (torch.float32, torch.float64):
        inputs = [t.float().to(dtype).requires_grad_() for t in make(3, 4, 2)]
        first = torch.autograd.grad(encode(*inputs).sum(), inputs, create_graph=True)
        found.append(torch.autograd.grad(sum(g.sum() for g in first), inputs))
    for single, double in zip(*found, strict=True):
        assert single.dtype == torch.float32
        assert torch.allclose(single.double(), double, rtol=1e-5, atol=1e-5 * double.abs().max())


def test_second_derivatives_in_parameters_of_opposite_signs_are_refused():
    _, B, alpha, beta = make(3, 1, 1)
    alpha.requires_grad_()
    value = encode(B, B, alpha, torch.full_like(beta, -0.1)).sum()
    (slope,) = torch.autograd.grad(value, alpha, create_graph=True)
    with pytest.raises(ValueError, match=r"opposite signs, .* keep both >= 0"):
        slope.sum().backward()


def test_products_with_the_hessian(device):
    """By differentiating the gradient in its direction once more, as `hvp` does."""
    inputs = make(2, 2, 2, device)
    along = tuple(torch.randn_like(tensor) for tensor in inputs)

    def loss(X, B, alpha, beta):
        return encode(symmetric(X), symmetric(B), alpha, beta).square().sum()

    _, right = torch.autograd.functional.vhp(loss, inputs, along)
    _, found = torch.autograd.functional.hvp(loss, inputs, along)
    for one, other in zip(found, right, strict=True):
        assert torch.allclose(one, other, rtol=1e-10)


def test_third_derivatives_are_refused():
    X, B, alpha, beta = make(3, 2, 2)
    B.requires_grad_()
    (first,) = torch.autograd.grad(encode(X, B, alpha, beta).sum(), B, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), B, create_graph=True)
    assert second.requires_grad
    with pytest.raises(RuntimeError, match="encode has no third derivatives; detach"):
        second.sum().backward()


def test_functional_transforms():
    X, B, alpha, beta = make(3, 2, 2)

    def loss(B):
        return encode(X, B, alpha, beta).square().sum()

    B.requires_grad_()
    (right,) = torch.autograd.grad(loss(B), B, create_graph=True)
    assert torch.equal(torch.func.grad(loss)(B), right)
    (right,) = torch.autograd.grad(right.square().sum(), B)
    found = torch.func.grad(lambda B: torch.func.grad(loss)(B).square().sum())(B)
    assert torch.allclose(found, right, rtol=1e-12)
    for transform in (torch.func.jacrev, torch.func.vmap):
        with pytest.raises(RuntimeError, match=r"inside torch.func.vmap, .*; pass it a batch"):
            transform(lambda B: encode(X, B.expand(2, 3, 3), alpha, beta).sum())(B[:1])


# --- the module -----------------------------------------------------------------------------------


EYE = torch.eye(3, dtype=torch.float64)
NOT_ATOMS = {
    "one size": ((24,), r"atoms is a int, but must be a tensor .* some of the matrices"),
    "NumPy": ((np.eye(3)[None],), r"atoms is a ndarray, .* pass torch.as_tensor\(atoms\)"),
    "one matrix": (
        (EYE,),
        r"atoms has shape \(3, 3\), expected \(n_atoms, d, d\); .* atoms\[None\]",
    ),
    "oblong": (
        (EYE[None, :2],),
        r"atoms has shape \(1, 2, 3\): its matrices are 2 by 3, not square",
    ),
    "none": ((EYE.repeat(0, 1, 1),), r"atoms is empty, shape \(0, 3, 3\)"),
    "integers": ((EYE[None].long(),), r"atoms has dtype torch.int64, .* pass atoms.double\(\)"),
    "NaN": ((EYE[None] * float("nan"),), r"atoms\[0\] has a NaN entry at \(0, 0\)"),
    "asymmetric": ((EYE[None] + EYE.roll(1, 0) / 9,), r"atoms\[0\] is not symmetric"),
    "singular": ((EYE[None] * 0 + 1,), r"atoms\[0\] is rank-deficient: numerical rank 1 of 3"),
    "indefinite": ((-EYE[None],), r"atoms\[0\] has a diagonal entry -1 at \(0, 0\), must be > 0"),
    "alpha below zero": (
        (EYE[None], [(-0.5, 0.5)]),
        r"divergence=\[\(-0.5, 0.5\)\] must hold pairs \(alpha, beta\) of finite numbers >= 0",
    ),
    "no divergence": ((EYE[None], None), r"divergence=None must be \"line\", \"learn\""),
    "the paper's": ((EYE[None], "S"), r"divergence='S' is for IDDLClassifier; pass pairs"),
}


@pytest.mark.parametrize("name", NOT_ATOMS)
def test_what_no_layer_can_start_from(name):
    arguments, message = NOT_ATOMS[name]
    with pytest.raises((TypeError, ValueError), match=message):
        DivergenceLayer.from_atoms(*arguments)


NOT_SIZES = {
    "atoms": ((EYE[None], 3), r"must be an integer >= 1; `from_atoms` takes the atoms"),
    "no atom": ((0, 3), r"n_atoms=0 must be >= 1"),
    "no size": ((4, 0), r"d=0 must be >= 1"),
    "half": ((4, 3, "stein", torch.float16), r"atoms has dtype torch.float16, but SPD matrices"),
}


@pytest.mark.parametrize("name", NOT_SIZES)
def test_sizes_that_no_layer_has(name):
    (n_atoms, d, *rest), message = NOT_SIZES[name]
    options = dict(zip(("divergence", "dtype"), rest, strict=False))
    with pytest.raises((TypeError, ValueError), match=message):
        DivergenceLayer(n_atoms, d, **options)


NOT_DATA = {
    "NumPy": (lambda X: X.numpy(), r"X is a ndarray, .* pass torch.as_tensor\(X\)"),
    "None": (
        lambda X: None,
        r"X is a NoneType, but must be a tensor of SPD matrices, shape \(..., d, d\)",
    ),
    "a vector": (lambda X: X[0, 0], r"X has shape \(3,\), expected \(..., d, d\); reshape it"),
    "oblong": (lambda X: X[:, :2], r"X has shape \(2, 2, 3\): its matrices are 2 by 3, not square"),
    "integers": (lambda X: (9 * X).long(), r"X has dtype torch.int64, .* pass X.double\(\)"),
    "half": (lambda X: X.half(), r"X has dtype torch.float16, but SPD matrices must be"),
    "NaN": (lambda X: X * float("nan"), r"X\[0\] has a NaN entry"),
    "asymmetric": (lambda X: X + X.triu(1), r"X\[0\] is not symmetric: .* must be <= 0.01"),
    "smaller": (lambda X: X[:, :2, :2], r"atoms are 3 by 3, but the data is 2 by 2"),
}


@pytest.mark.parametrize("name", NOT_DATA)
def test_what_cannot_be_encoded(name):
    X, B, alpha, beta = make(3, 2, 2)
    change, message = NOT_DATA[name]
    with pytest.raises((TypeError, ValueError), match=message):
        encode(change(X), B, alpha, beta)
    with pytest.raises(TypeError, match="alpha=None must be a number or a tensor of numbers"):
        encode(X, B, None, beta)


def test_atoms_are_copied_without_their_graph():
    B = make(3, 1, 2)[1].requires_grad_()
    layer = DivergenceLayer.from_atoms(2 * B)
    assert layer.atoms.is_leaf
    layer(B.detach()).sum().backward()
    assert B.grad is None


def test_autocast():
    """Half precision from the layers below becomes float32, as in torch's linear algebra."""
    X, B, _, _ = make(3, 5, 2)
    layer = DivergenceLayer.from_atoms(B.float())
    rounded = X.bfloat16().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        values = layer(rounded)
        values.sum().backward()
        with layer.stepping():
            torch.optim.SGD([layer.atoms], lr=0.1).step()
    assert values.dtype == torch.float32
    assert rounded.grad.dtype == torch.bfloat16
    other = DivergenceLayer.from_atoms(B.float())
    right = other(rounded.detach().float())
    right.sum().backward()
    assert torch.equal(values, right)
    with other.stepping():
        torch.optim.SGD([other.atoms], lr=0.1).step()
    assert torch.equal(layer.atoms, other.atoms)


def test_autocast_of_filters():
    rounded = make(3, 5, 2)[0].bfloat16()
    layer = DivergenceLayer(2, rounded.shape[-1], rank=1, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        values = layer(rounded)
    assert torch.equal(values, layer(rounded.float()))
