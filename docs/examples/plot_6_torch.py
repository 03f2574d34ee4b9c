"""
A network that ends in a divergence
===================================

A network can learn what to measure. A covariance describes how the measurements vary together, and
a divergence compares covariances. With the torch layer, all three are learned at once. (This
example needs PyTorch. Where the manual is built without it, the code is shown but not run.)
"""

# %%
# We simulate recordings of eight channels in three states. The states differ in which hidden source
# is more active. The sources are mixed, so no single channel reveals the state.

import matplotlib.pyplot as plt
import torch
from torch import nn

from divlearn import IDDLClassifier
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
# The network has four parts: a linear filter from eight channels to six, the covariance of the
# filter's outputs, the divergences of this covariance to six atoms, and a linear classifier on
# their standardised logarithms. Each atom has its own alpha and beta, and starts at a k-means
# centre of a state.


class Network(nn.Module):
    """Filter, covariance, divergences, classifier."""

    def __init__(self, signals, states, n_filters=6, n_atoms=6):
        super().__init__()
        self.filter = nn.Linear(n_channels, n_filters, bias=False)
        nn.init.orthogonal_(self.filter.weight)
        with torch.no_grad():
            start = self.covariances(signals)
            self.divergences = DivergenceLayer.from_data(start, states, n_atoms)
            self.register_buffer("offset", 0.1 * self.divergences(start).mean(dim=0))
        self.standardize = nn.BatchNorm1d(n_atoms, affine=False, momentum=1.0)
        self.classify = nn.Linear(n_atoms, 3)

    def covariances(self, signals):
        """Covariances of what the filters let through."""
        filtered = self.filter(signals.mT)
        return filtered.mT @ filtered / filtered.shape[1]

    def forward(self, signals):
        """Scores of the three states."""
        logarithms = torch.log(self.divergences(self.covariances(signals)) + self.offset)
        return self.classify(self.standardize(logarithms))


# %%
# It is trained like any network, with a penalty on the classifier. Atoms must stay positive
# definite: inside ``stepping`` the optimizer moves them along the manifold, by bounded steps that
# are relative to the atom.

network = Network(recordings[train], state[train])
layer = network.divergences
fast = {"params": network.classify.parameters(), "lr": 0.05}
slow = {"params": [*network.filter.parameters(), *layer.parameters()], "lr": 0.01}
optimizer = torch.optim.Adam([fast, slow])
losses, accuracies, path = [], [], []
for _ in range(60):
    network.train()
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(network(recordings[train]), state[train])
    (loss + 5e-3 * network.classify.weight.square().sum()).backward()
    with layer.stepping():
        optimizer.step()
    network.eval()
    with torch.no_grad():
        right = network(recordings[test]).argmax(dim=1) == state[test]
    losses.append(loss.item())
    accuracies.append(right.double().mean().item())
    path.append(torch.cat([layer.alpha, layer.beta], dim=1).detach().T)

# %%
# `divlearn.IDDLClassifier` learns such atoms from the covariances of all channels, without filters
# and in one call.

with torch.no_grad():
    matrices = (recordings @ recordings.mT / n_times).numpy()
classifier = IDDLClassifier(random_state=0).fit(matrices[train], state[train])
reached = classifier.score(matrices[test], state[test])
print(f"IDDLClassifier {reached:.1%}, network {accuracies[-1]:.1%}")

# %%
# The left panel shows the progress of learning, the right panel the paths of the divergences. All
# start at Stein's (0.5, 0.5), and every atom ends at a different point.

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.8), layout="constrained")
left.plot(losses, color="#0072b2", label="loss in training")
left.plot(accuracies, color="#d55e00", label="accuracy on held-out recordings")
left.axhline(reached, color="#d55e00", linestyle="--", linewidth=1, label="that of IDDLClassifier")
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
