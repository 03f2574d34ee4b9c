"""
A network that ends in a divergence
===================================

A network learns filters, a covariance describes how their outputs vary together, and divergences
compare the covariance with atoms. The torch layer trains all three together. (This example needs
PyTorch. If the manual is built without it, the code is shown but not run.)
"""

# %%
# Recordings have eight channels and three states. The states differ in which hidden source is
# active. The sources are mixed, so no single channel shows the state.

import matplotlib.pyplot as plt
import torch
from torch import nn

from divlearn.torch import DivergenceLayer

torch.manual_seed(0)
torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)
n_recordings, n_channels, n_sources, n_times = 240, 8, 6, 32
state = torch.arange(n_recordings) % 3
strength = torch.exp(0.3 * torch.randn(n_recordings, n_sources))
strength[torch.arange(n_recordings), state] *= 1.8
mixing = torch.randn(n_channels, n_sources)
recordings = mixing @ (strength[:, :, None] * torch.randn(n_recordings, n_sources, n_times))
recordings += 0.5 * torch.randn(n_recordings, n_channels, n_times)
train, test = torch.arange(0, n_recordings, 2), torch.arange(1, n_recordings, 2)

# %%
# The network: a linear filter from eight channels to four, the covariance of its outputs, the
# divergences of this covariance to six atoms, each with an alpha and a beta of its own, and a
# linear classifier on them.


class Network(nn.Module):
    """Filter, covariance, divergences, classifier."""

    def __init__(self, n_filters=4, n_atoms=6):
        super().__init__()
        self.filter = nn.Linear(n_channels, n_filters, bias=False)
        self.divergences = DivergenceLayer(self.covariances(recordings[train[:n_atoms]]))
        self.classify = nn.Linear(n_atoms, 3)

    def covariances(self, signals):
        """Covariances of what the filters let through."""
        filtered = self.filter(signals.mT)
        return filtered.mT @ filtered / filtered.shape[1]

    def forward(self, signals):
        """Scores of the three states."""
        return self.classify(self.divergences(self.covariances(signals)))


# %%
# The training loop is the usual one. Atoms have to stay positive definite: inside ``stepping`` the
# optimizer moves them along the manifold, by bounded steps that are relative to the atom. One
# learning rate therefore suits all parameters.

network = Network()
optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
losses, accuracies, path = [], [], []
for _ in range(200):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(network(recordings[train]), state[train])
    loss.backward()
    with network.divergences.stepping():
        optimizer.step()
    losses.append(loss.item())
    path.append(torch.stack([network.divergences.alpha, network.divergences.beta]).detach().clone())
    with torch.no_grad():
        right = network(recordings[test]).argmax(dim=1) == state[test]
    accuracies.append(right.double().mean().item())

# %%
# The left panel shows the training. The right panel shows the divergences: all start at Stein's
# (0.5, 0.5), and each atom moves to a point of its own.

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.8), layout="constrained")
left.plot(losses, color="#0072b2", label="loss in training")
left.plot(accuracies, color="#d55e00", label="accuracy on held-out recordings")
left.axhline(1 / 3, color="#cccccc", linestyle=":")
left.text(len(losses), 1 / 3, "chance ", ha="right", va="top", color="#888888")
left.set(xlabel="step", ylim=(0, None), title="learning filters, atoms and divergences")
left.legend(frameon=False)
trajectories = torch.stack(path)  # (steps, 2, atoms)
for atom in range(trajectories.shape[2]):
    (line,) = right.plot(*trajectories[:, :, atom].T, linewidth=1.5)
    right.plot(*trajectories[-1, :, atom], "o", color=line.get_color(), markersize=9)
for name, place in {
    "AIRM": (0, 0),
    "Stein": (0.5, 0.5),
    "Burg": (0, 1),
    "log-cosh": (1, 1),
}.items():
    right.plot(*place, "k+")
    right.annotate(name, place, (5, 4), textcoords="offset points")
right.set(xlabel=r"$\alpha$", ylabel=r"$\beta$", title="divergences of the six atoms")
for panel in (left, right):
    panel.spines[["top", "right"]].set_visible(False)
plt.show()
