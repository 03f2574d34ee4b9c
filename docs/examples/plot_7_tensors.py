"""
Diffusion tensors: which mean, which tissue
===========================================

Diffusion MRI measures how far water moves in each direction. Every voxel of the image is then a
3 x 3 SPD matrix, the diffusion tensor. Fluid lets water move freely, grey matter slows it down in
all directions, and bundles of fibres slow it down across the fibres but hardly along them.
"""

# %%
# We simulate a slice through a brain with grey matter, a ventricle filled with fluid, and two
# bundles. Like a scanner, we measure each voxel along twelve directions, with the noise of a
# magnitude image. A blur mixes two tissues in voxels at borders. We fit tensors to the logarithms
# of the signals by least squares.

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.collections import EllipseCollection
from matplotlib.colors import to_rgba_array
from scipy.ndimage import gaussian_filter
from scipy.optimize import linear_sum_assignment
from scipy.spatial.transform import Rotation
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score, confusion_matrix

from divlearn import ABMixture, LogEuclideanKMeans, mean_abld, which_divergence
from divlearn.spd import expm, logm

rows, columns = np.mgrid[:20, :30]
tissue = np.zeros(rows.shape, dtype=int)  # grey matter
tissue[((rows - 14) / 3.5) ** 2 + ((columns - 11) / 6) ** 2 < 1] = 1  # fluid
tissue[abs(rows - 5 - 4 * ((columns - 14.5) / 15) ** 2) < 2.2] = 2  # a bundle from left to right
tissue[(abs(columns - 24) < 2.2) & (rows > 9)] = 3  # a bundle from top to bottom
angle = np.where(tissue == 2, np.arctan(8 * (columns - 14.5) / 15**2), np.pi / 2)
fibre = np.stack([np.cos(angle), np.sin(angle), 0 * angle], axis=-1)
along, across = np.array([[0.8, 3.0, 1.7, 1.7], [0.8, 3.0, 0.35, 0.35]])[:, tissue]  # um^2 / ms
truth = across[..., None, None] * np.eye(3)
truth += (along - across)[..., None, None] * fibre[..., :, None] * fibre[..., None, :]

steps = np.arange(12) + 0.5  # directions, spread evenly over half of the sphere
height, turn = 1 - steps / 12, np.pi * (1 + np.sqrt(5)) * steps
width = np.sqrt(1 - height**2)
directions = np.stack([width * np.cos(turn), width * np.sin(turn), height], axis=1)
signal = np.exp(-0.7 * np.einsum("ki,rcij,kj->rck", directions, truth, directions))
signal = gaussian_filter(signal, (0.7, 0.7, 0))
noise = 0.05 * np.random.default_rng(0).standard_normal((2, *signal.shape))
measured = np.hypot(signal + noise[0], noise[1])

i, j = np.triu_indices(3)
design = directions[:, i] * directions[:, j] * np.where(i == j, 1, 2)
entries = (-np.log(measured) / 0.7 @ np.linalg.pinv(design).T).reshape(-1, 6)
X = np.zeros((len(entries), 3, 3))
X[:, i, j] = X[:, j, i] = entries
y = tissue.ravel()

# %%
# Means that swell
# ----------------
# The determinant of a tensor measures how much water moves in total. The determinant of a mean
# should not exceed those of the tensors. That of the arithmetic mean of two tensors with different
# directions does: the mean swells. The figure shows paths from a fibre to one that is turned by 60
# degrees, as weighted means of four kinds. The AIRM mean and the log-Euclidean mean keep the
# determinant, and the Stein mean nearly does.

turn = Rotation.from_euler("zx", [60, 40], degrees=True).as_matrix()
fibre = np.diag([1.7, 0.5, 0.2])
ends = np.stack([fibre, turn @ fibre @ turn.T])
fractions = np.linspace(0, 1, 9)
weights = np.stack([1 - fractions, fractions], axis=1)
paths = {
    "arithmetic, (0, 1)": [mean_abld(ends, 0, 1, w).mean for w in weights],
    "Stein, (0.5, 0.5)": [mean_abld(ends, 0.5, 0.5, w).mean for w in weights],
    "AIRM, (0, 0)": [mean_abld(ends, 0, 0, w).mean for w in weights],
    "log-Euclidean": [expm(np.tensordot(w, logm(ends), axes=1)) for w in weights],
}


def draw(panel, tensors, places, colors):
    """Draw tensors as ellipses, which show how far water moves."""
    values, vectors = np.linalg.eigh(np.asarray(tensors)[:, :2, :2])
    lengths = 0.6 * np.sqrt(values)
    angles = np.degrees(np.arctan2(vectors[:, 1, 1], vectors[:, 0, 1]))
    panel.add_collection(
        EllipseCollection(
            lengths[:, 1],
            lengths[:, 0],
            angles,
            units="x",
            offsets=places,
            offset_transform=panel.transData,
            facecolors=colors,
            linewidths=0,
        )
    )
    panel.set(aspect="equal", xticks=[], yticks=[])
    panel.spines[:].set_visible(False)


figure, (left, right) = plt.subplots(
    1, 2, figsize=(11, 3.6), layout="constrained", width_ratios=[1.4, 1]
)
colors, styles = ["#d55e00", "#009e73", "#0072b2", "#cc79a7"], ["-", "-", "-", ":"]
for k, (name, path) in enumerate(paths.items()):
    draw(left, path, [(column, -k) for column in range(9)], colors[k])
    left.text(-0.8, -k, name, ha="right", va="center", color=colors[k])
    volume = np.linalg.det(path) / np.linalg.det(ends[0])
    right.plot(fractions, volume, styles[k], color=colors[k], linewidth=3, label=name)
left.set(xlim=(-4.6, 8.6), ylim=(-3.6, 0.6))
right.set(xlabel="way from the first to the second", ylabel="determinant / that of the ends")
right.legend(frameon=False)
right.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# With labels, any divergence tells tissues apart
# -----------------------------------------------
# The nearest neighbour of a voxel nearly always has the same tissue, in every divergence.

grid = np.linspace(0, 2, 9)
print(which_divergence(X, y, alphas=grid, betas=grid, random_state=0).summary())

# %%
# Without labels, it matters
# --------------------------
# A mixture finds the tissues without labels. It learns the divergence, and the spread of each
# tissue: kappa is small where tensors are noisy, as in the fluid, whose signals are weak. This
# spread misleads k-means on the entries of the tensors. It does not mislead k-means on logarithms,
# which however gives no probabilities.

mixture = ABMixture(4, share="divergence", random_state=0).fit(X)
found = {
    "mixture, divergence learned": mixture.predict(X),
    "k-means of entries": KMeans(4, n_init=5, random_state=0).fit_predict(entries),
    "k-means of logarithms": LogEuclideanKMeans(4, random_state=0).fit_predict(X),
}
for name, clusters in found.items():
    print(f"{name}: adjusted Rand index {adjusted_rand_score(y, clusters):.2f}")
print(f"alpha {mixture.alpha_[0]:.2f}, beta {mixture.beta_[0]:.2f}, kappa {mixture.kappa_.round()}")

# %%
# Colours show clusters. The mixture is uncertain about pale voxels, which lie on borders, where two
# tissues share a voxel.

palette = to_rgba_array(["#999999", "#56b4e9", "#d55e00", "#009e73"])
places = np.column_stack([columns.ravel(), rows.ravel()])
clusters = mixture.predict(X)
tissue_of = linear_sum_assignment(-confusion_matrix(clusters, y))[1]
colors = palette[tissue_of[clusters]]
colors[:, 3] = np.clip(2 * mixture.predict_proba(X).max(axis=1) - 1, 0.15, 1)

figure, (left, right) = plt.subplots(1, 2, figsize=(13, 4.6), layout="constrained")
draw(left, truth.reshape(-1, 3, 3), places, palette[y])
left.set(xlim=(-1, 30), ylim=(20, -1), title="the tissues, without noise")
draw(right, X, places, colors)
right.set(xlim=(-1, 30), ylim=(20, -1), title="measured tensors, and clusters of the mixture")
plt.show()
