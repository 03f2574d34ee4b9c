"""`DivergenceLayer` in networks: starts, shapes, mixed precision, layers of other packages."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn.utils.parametrize import register_parametrization  # noqa: E402

from divlearn import IDDLClassifier, get_divergence  # noqa: E402
from divlearn.datasets import make_wishart_clusters  # noqa: E402
from divlearn.iddl import Recipe  # noqa: E402
from divlearn.spd import check_spd  # noqa: E402
from divlearn.torch import DivergenceLayer, encode  # noqa: E402


@pytest.fixture
def clusters():
    X, y = make_wishart_clusters(3, 30, 4, separation=3, random_state=0)
    return torch.from_numpy(X), y


# --- where it starts ------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 5, 40])
def test_random_atoms_differ_and_are_well_conditioned(d):
    torch.manual_seed(0)
    layer = DivergenceLayer(6, d, dtype=torch.float64)
    atoms = check_spd(layer.atoms.detach().numpy(), ndim=3)
    assert np.abs(np.log(np.linalg.eigvalsh(atoms))).max() < 3
    distances = get_divergence("airm").pairwise(atoms, squared=False)
    assert distances[np.triu_indices(6, 1)].min() > 1e-2
    torch.manual_seed(0)
    assert torch.equal(DivergenceLayer(6, d, dtype=torch.float64).atoms, layer.atoms)
    assert layer.alpha.shape == layer.beta.shape == (6, 1)
    assert repr(layer) == f"DivergenceLayer(n_atoms=6, d={d}, out_features=6)"


@pytest.mark.parametrize(
    ("divergence", "pairs", "learned"),
    [
        ("line", [(0.5, 0.5), (0, 1), (1, 0)], False),
        ("learn", [(1, 1), (0, 1), (1, 0)], True),
        ("burg", [(0, 1)], False),
        ((0.3, 0.4), [(0.3, 0.4)], False),
        ([(0.3, 0.4), (1, 2)], [(0.3, 0.4), (1, 2)], True),
    ],
)
def test_divergences(clusters, divergence, pairs, learned):
    """Values are those of `Divergence`, the pairs of an atom next to each other."""
    X, _ = clusters
    layer = DivergenceLayer.from_atoms(X[:2], divergence)
    assert layer.out_features == 2 * len(pairs)
    assert {name for name, _ in layer.named_parameters()} == (
        {"atoms", "alpha", "beta"} if learned else {"atoms"}
    )
    values = layer(X).reshape(len(X), 2, len(pairs))
    for p, pair in enumerate(pairs):
        right = get_divergence(pair).pairwise(X.numpy(), X[:2].numpy())
        np.testing.assert_allclose(values[:, :, p].detach(), right, rtol=1e-9, atol=1e-12)


def test_atoms_from_data_are_those_of_iddl(clusters):
    """With as many atoms as classes, both are log-Euclidean means of the classes."""
    X, y = clusters
    layer = DivergenceLayer.from_data(X, torch.from_numpy(y), 3, "line")
    model = IDDLClassifier(3, cv=None, max_iter=0, random_state=0).fit(X.numpy(), y)
    np.testing.assert_allclose(layer.atoms.detach(), model.atoms_, rtol=1e-9)
    unlabelled = DivergenceLayer.from_data(X, n_atoms=5)
    assert unlabelled.atoms.shape == (5, 4, 4)
    assert DivergenceLayer.from_data(X.float(), y.tolist(), 4).atoms.dtype == torch.float32


def test_what_from_data_refuses(clusters):
    X, y = clusters
    with pytest.raises(ValueError, match="n_atoms=91 must be >= 1 and <= 90, the number of matr"):
        DivergenceLayer.from_data(X, y, 91)
    with pytest.raises(ValueError, match="y has 89"):
        DivergenceLayer.from_data(X, y[1:], 3)
    with pytest.raises(TypeError, match="X is a ndarray"):
        DivergenceLayer.from_data(X.numpy(), y, 3)


def test_state_of_one_start_fits_every_other(clusters):
    X, y = clusters
    layer = DivergenceLayer.from_data(X, y, 6, "learn")
    other = DivergenceLayer(6, 4, "learn", dtype=torch.float64)
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other(X), layer(X))
    with pytest.raises(RuntimeError, match="size mismatch for atoms"):
        DivergenceLayer(5, 4, "learn").load_state_dict(layer.state_dict())


# --- shapes ---------------------------------------------------------------------------------------


def test_leading_shapes(clusters):
    X, _ = clusters
    layer = DivergenceLayer.from_atoms(X[:2], "line")
    flat = layer(X)
    for shape in ((90,), (3, 30), (5, 1, 18), (2, 3, 3, 5)):
        given = X.reshape(*shape, 4, 4).requires_grad_()
        values = layer(given)
        assert values.shape == (*shape, 6)
        assert torch.equal(values.reshape(90, 6), flat)
        values.sum().backward()
        assert given.grad.shape == given.shape
    assert torch.allclose(layer(X[7]), flat[7], rtol=1e-12)
    assert encode(X[7], X[:2], 0.5, 0.5).shape == (2,)
    strided = X.reshape(3, 30, 4, 4).transpose(0, 1)
    right = flat.reshape(3, 30, 6).transpose(0, 1)
    assert torch.allclose(layer(strided), right, rtol=1e-12)


# --- mixed precision ------------------------------------------------------------------------------


def test_a_network_in_mixed_precision(clusters):
    """Scaled gradients and autocast: divergences and steps as in float32."""
    X = clusters[0].float()
    found = []
    for enabled in (True, False):
        layer = DivergenceLayer.from_atoms(X[:3], "line")
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", enabled=enabled)
        with torch.autocast("cpu", dtype=torch.float16, enabled=enabled):
            values = layer(X)
            assert values.dtype == torch.float32
            loss = values.mean()
        scaler.scale(loss).backward()
        with layer.stepping():
            scaler.step(optimizer)
        scaler.update()
        found.append(layer.atoms.detach())
    assert torch.allclose(*found, rtol=1e-5)


def test_a_step_that_the_scaler_skips_changes_nothing(clusters):
    X, _ = clusters
    layer = DivergenceLayer.from_atoms(X[:2])
    optimizer, scaler = torch.optim.SGD(layer.parameters(), lr=0.1), torch.amp.GradScaler("cpu")
    before = layer.atoms.detach().clone()
    scaler.scale(layer(X).mean() * torch.inf).backward()  # as where a scaled loss overflows
    with layer.stepping():
        scaler.step(optimizer)
    assert torch.equal(layer.atoms, before)


# --- layers of other packages ---------------------------------------------------------------------


def test_spd_learn_before_and_behind():
    """Windows of recordings: covariances, a bilinear map, divergences, and their covariances."""
    modules = pytest.importorskip("spd_learn.modules", reason="spd_learn is not installed")
    torch.manual_seed(0)
    series = torch.randn(8, 5, 6, 50)  # recordings, windows, channels, times
    layer = DivergenceLayer(3, 4)
    before = nn.Sequential(modules.CovLayer(), modules.BiMap(6, 4), modules.ReEig(), layer)
    behind = nn.Sequential(modules.CovLayer(), modules.Shrinkage(3), modules.LogEig())
    network = nn.Sequential(before, nn.Flatten(), nn.Linear(15, 2))
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    y = torch.arange(8) % 2
    losses = []
    for _ in range(10):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(network(series), y)
        loss.backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())
        with layer.stepping():
            optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    divergences = before(series)
    assert divergences.shape == (8, 5, 3)
    behind(divergences.mT).square().sum().backward()
    assert layer.atoms.grad.isfinite().all()


def test_atoms_parametrized_by_spd_learn():
    """Its parametrization keeps atoms positive definite, so that no `stepping` is needed."""
    modules = pytest.importorskip("spd_learn.modules", reason="spd_learn is not installed")
    X, _ = make_wishart_clusters(2, 10, 4, random_state=0)
    X = torch.from_numpy(X)
    layer = DivergenceLayer.from_atoms(X[:2], "stein")
    register_parametrization(layer, "atoms", modules.SymmetricPositiveDefinite())
    assert torch.allclose(layer.atoms, X[:2], rtol=1e-6)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.05)
    first = layer(X).mean().item()
    for _ in range(10):
        optimizer.zero_grad()
        layer(X).mean().backward()
        optimizer.step()
    assert layer(X).mean().item() < first


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
def test_geoopt_before_and_behind(clusters):
    """Stiefel weights before, hyperbolic hyperplanes behind, and one optimizer for all."""
    geoopt = pytest.importorskip("geoopt", reason="geoopt is not installed")
    from geoopt.layers.stereographic import Distance2StereographicHyperplanes

    X, y = clusters
    torch.manual_seed(0)
    sphere = geoopt.Stiefel()
    weight = geoopt.ManifoldParameter(sphere.random(4, 3, dtype=X.dtype), manifold=sphere)
    layer = DivergenceLayer(5, 3, dtype=X.dtype)
    spd = geoopt.SymmetricPositiveDefinite()
    layer.atoms = geoopt.ManifoldParameter(layer.atoms.detach(), manifold=spd)
    ball = geoopt.PoincareBall()
    planes = Distance2StereographicHyperplanes(5, 3, ball=ball).double()
    optimizer = geoopt.optim.RiemannianAdam([weight, *layer.parameters(), *planes.parameters()])
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        divergences = layer(weight.mT @ X @ weight)
        scores = planes(ball.expmap0(0.1 * divergences))
        loss = nn.functional.cross_entropy(scores, torch.from_numpy(y))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    check_spd(layer.atoms.detach().numpy())


# --- a whole network ------------------------------------------------------------------------------


def fit_network(X: torch.Tensor, y: torch.Tensor, n_steps: int = 26) -> nn.Module:
    """Learn as IDDL does: standardised logarithms of divergences, and a penalised linear head."""
    torch.manual_seed(0)
    n_classes = int(y.max()) + 1
    layer = DivergenceLayer.from_data(X, y, 3 * n_classes, "line")
    with torch.no_grad():
        offset = 0.1 * layer(X).mean(dim=0)

    class Logarithm(nn.Module):
        def forward(self, divergences):
            return torch.log(divergences + offset)

    n = layer.out_features
    scale = nn.BatchNorm1d(n, affine=False, momentum=1.0, dtype=X.dtype)  # by all of X
    head = nn.Linear(n, n_classes, dtype=X.dtype)
    network = nn.Sequential(layer, Logarithm(), scale, head)
    groups = [{"params": layer.parameters(), "lr": 0.02}, {"params": head.parameters()}]
    optimizer = torch.optim.Adam(groups, lr=0.05)
    for _ in range(n_steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(network(X), y)
        (loss + 5e-3 * head.weight.square().sum()).backward()
        with layer.stepping():
            optimizer.step()
    return network.eval()


def compare_with_iddl(X, y, train, test):
    """Accuracies of a network and of one model of `IDDLClassifier` of the same form."""
    network = fit_network(torch.from_numpy(X[train]), torch.from_numpy(y[train]))
    with torch.no_grad():
        said = network(torch.from_numpy(X[test])).argmax(dim=1).numpy()
    form = {"rank": "full", "cv": None, "random_state": 0}
    model = IDDLClassifier(3 * (y.max() + 1), recipe=Recipe(loss="softmax"), **form).fit(
        X[train], y[train]
    )
    return np.mean(said == y[test]), model.score(X[test], y[test])


def test_a_network_learns_as_iddl_does():
    X, y = make_wishart_clusters(4, 60, 5, dof=8, separation=3, random_state=0)
    found, right = compare_with_iddl(X, y, slice(0, None, 2), slice(1, None, 2))
    assert found > right - 0.03  # one standard error


def test_a_network_learns_as_iddl_does_on_emg():
    """From one session of a person to the other."""
    path = Path(os.environ.get("DIVLEARN_DATA", "/nowhere")) / "emg" / "emg.npz"
    if not path.exists():
        pytest.skip("DIVLEARN_DATA names no folder that has emg/emg.npz")
    packed = np.load(path)
    d, y = int(packed["d"]), np.unique(packed["y"], return_inverse=True)[1]
    X = np.zeros((len(y), d, d))
    X[:, *np.tril_indices(d)] = packed["tri"]
    X += np.tril(X, -1).mT
    found, right = compare_with_iddl(X, y, packed["train_0"][::2], packed["test_0"])
    assert found > right - 0.05
