"""Filters as a layer: against the engines, finite differences, and full rank."""

import numpy as np
import pytest
import torch
from conftest import wishart
from numpy.testing import assert_allclose

from divlearn.engines import get_engine
from divlearn.torch import DivergenceLayer, encode, encode_filters

PAIRS = np.array([[0.5, 0.5], [0.0, 1.0], [0.3, 1.2]])


def problem(n=6, d=5, n_atoms=3, p=2):
    rng = np.random.default_rng(0)
    X = torch.from_numpy(wishart(rng, n, d))
    filters = torch.from_numpy(0.5 * rng.standard_normal((n_atoms, d, p)))
    alpha, beta = (torch.from_numpy(np.tile(one, (n_atoms, 1))) for one in PAIRS.T)
    return X, filters, alpha, beta


def test_values_are_those_of_engines():
    X, filters, alpha, beta = given = problem()
    values = encode_filters(*given).numpy()
    engine = get_engine("reference")
    known = [one.numpy() for one in (filters, alpha, beta)]
    found = engine.encode_filters(engine.prepare(X.numpy()), *known)
    assert_allclose(values[..., :-1], found[..., :-1], rtol=1e-10)
    assert_allclose(values[..., -1], np.log(found[..., -1]), rtol=1e-10)


def test_square_filters_are_atoms_of_full_rank():
    X, filters, alpha, beta = problem(p=5)
    atoms = torch.linalg.inv(filters @ filters.mT)
    full = encode(X, 0.5 * (atoms + atoms.mT), alpha, beta)
    assert_allclose(encode_filters(X, filters, alpha, beta)[..., :-1], full, rtol=1e-7)


def test_gradients_are_differences():
    given = [one.requires_grad_() for one in problem(n=2, d=3, n_atoms=2)]

    def symmetric(X, *others):
        return encode_filters(0.5 * (X + X.mT), *others)

    assert torch.autograd.gradcheck(symmetric, given, atol=1e-6)


def test_one_number_is_for_all_filters():
    X, filters, _, _ = problem()
    one = encode_filters(X, filters, 0.0, 1.0)
    many = encode_filters(X, filters, torch.zeros(3, 1), torch.ones(3, 1))
    assert one.shape == (6, 3, 2)
    assert_allclose(one, many, rtol=0)


@pytest.mark.parametrize("rank", [1, 2])
def test_a_layer_learns_without_stepping(rank):
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    X = wishart(rng, 60, 5)
    X[30:, :2] *= 2
    X[30:, :, :2] *= 2
    X, y = torch.from_numpy(X), torch.arange(60) // 30
    layer = DivergenceLayer.from_data(X, y, 4, "line", rank=rank)
    assert layer.atoms.shape == (4, 5, rank)
    assert layer(X).shape == (60, layer.out_features) == (60, 16)
    assert f"rank={rank}" in repr(layer)
    network = torch.nn.Sequential(layer, torch.nn.Linear(16, 2).double())
    optimizer = torch.optim.Adam(network.parameters(), lr=0.05)
    losses = []
    for _ in range(15):
        optimizer.zero_grad()
        losses.append(torch.nn.functional.cross_entropy(network(X), y))
        losses[-1].backward()
        optimizer.step()
    assert losses[-1] < 0.5 * losses[0]
    again = DivergenceLayer(4, 5, "line", rank=rank, dtype=torch.float64)
    again.load_state_dict(layer.state_dict())
    assert_allclose(again(X).detach(), layer(X).detach(), rtol=0)


def test_mistakes_are_named():
    X, filters, alpha, beta = problem()
    with pytest.raises(ValueError, match=r"rank=5 must be >= 1 and <= 4, the size of the matrices"):
        DivergenceLayer(3, 5, rank=5)
    layer = DivergenceLayer(3, 5, rank=2)
    with pytest.raises(RuntimeError, match="filters move freely"), layer.stepping():
        pass
    with pytest.raises(ValueError, match=r"filters have shape \(3, 4, 2\), but X has matrices of"):
        encode_filters(X, filters[:, :4], alpha, beta)
    for wrong in (filters.float(), filters[0], filters.detach().numpy()):
        with pytest.raises(
            ValueError, match=r"filters must be a tensor of shape \(n_atoms, d, p\)"
        ):
            encode_filters(X, wrong, alpha, beta)
    with pytest.raises(ValueError, match=r"filters have rank p=\d+, must have p <= d=5"):
        encode_filters(X, torch.cat([filters] * 5, dim=2), alpha, beta)
