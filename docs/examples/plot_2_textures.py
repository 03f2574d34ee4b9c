"""
Segment a mosaic of textures
============================

The covariance of pixel features describes the texture of a small window: how much grey values vary,
how steep they are, and how the two are related. Here every window of a mosaic becomes a covariance
matrix. A classifier, trained on other parts of the photographs, predicts its texture.
"""

# %%
# Three photographs ship with scikit-image. Their upper halves are the training data. The mosaic is
# composed of the lower halves, which the classifier never sees.

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import ListedColormap
from skimage import data

from divlearn.descriptors import RegionCovariance
from divlearn.kernels import DivergenceKernelClassifier

names = ["brick", "grass", "gravel"]
photographs = np.stack([getattr(data, name)() for name in names])
upper, lower = photographs[:, :256], photographs[:, 256:]

rows, columns = np.mgrid[:256, :512]
truth = np.zeros((256, 512), dtype=int)
truth[columns + 60 * np.sin(rows / 40) > 256] = 1
truth[(rows - 128) ** 2 + (columns - 256) ** 2 < 90**2] = 2
mosaic = np.take_along_axis(lower, truth[None], axis=0)[0]

# %%
# Windows of 32 by 32 pixels become 5 by 5 matrices. A support vector machine compares them by a
# divergence, which it chooses by cross-validation.

window = 32
describe = RegionCovariance("texture", patch=window, stride=24).fit(upper)
training = describe.transform(upper)  # (3 photographs, windows, 5, 5)
labels = np.repeat(np.arange(3), training.shape[1])
classifier = DivergenceKernelClassifier(random_state=0)
classifier.fit(training.reshape(-1, *training.shape[2:]), labels)
print(classifier.message_)

# %%
# Now the mosaic, with a window around every fourth pixel. Integral images compute the thousands of
# covariances of overlapping windows fast.

step = 4
regions = describe.set_params(stride=step).transform_regions(mosaic[None])
found = classifier.predict(regions.matrices)
shape = [(side - window) // step + 1 for side in mosaic.shape]
inside = truth[window // 2 :: step, window // 2 :: step][: shape[0], : shape[1]]
share = np.mean(found.reshape(shape) == inside)

colors = ListedColormap(["#d55e00", "#009e73", "#0072b2"])
extent = (window / 2, 512 - window / 2, 256 - window / 2, window / 2)
figure, panels = plt.subplots(3, 1, figsize=(7, 10.5), layout="constrained")
panels[0].imshow(mosaic, cmap="gray")
panels[0].set_title("the mosaic")
panels[1].imshow(mosaic, cmap="gray")
panels[1].imshow(found.reshape(shape), cmap=colors, alpha=0.55, extent=extent, vmin=0, vmax=2)
panels[1].set_title(f"what each window shows: right for {share:.0%} of them")
panels[2].imshow(truth, cmap=colors, vmin=0, vmax=2)
panels[2].set_title("how it was put together")
for panel in panels:
    panel.set(xlim=(0, 512), ylim=(256, 0), xticks=[], yticks=[])
handles = [plt.Rectangle((0, 0), 1, 1, color=color) for color in colors.colors]
figure.legend(handles, names, loc="outside lower center", ncols=3, frameon=False)
plt.show()

# %%
# Most mistakes are on the borders, where a window contains two textures.
