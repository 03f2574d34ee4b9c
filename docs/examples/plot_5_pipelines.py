"""
From pixels to a decision, in one scikit-learn pipeline
=======================================================

Descriptors are scikit-learn transformers, so one `Pipeline` leads from images to labels. The pixel
features and the divergence are parameters of the pipeline, and a grid search chooses both together.
"""

# %%
# The data are scikit-learn's handwritten digits, 8 by 8 pixels each. We try two sets of pixel
# features (grey value and slopes, with and without the position) and four divergences.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import ConfusionMatrixDisplay
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import Pipeline

from divlearn import DivergenceKNN
from divlearn.descriptors import RegionCovariance

digits = load_digits()
train, test, train_labels, test_labels = train_test_split(
    digits.images, digits.target, train_size=500, test_size=500, random_state=0
)
slopes = ["I", "|Ix|", "|Iy|", "Ix", "Iy"]
pipeline = Pipeline([("describe", RegionCovariance()), ("classify", DivergenceKNN(5))])
search = GridSearchCV(
    pipeline,
    {
        "describe__features": [slopes, ["x", "y", *slopes]],
        "describe__floor": [1e-3],
        "classify__divergence": ["log-euclidean", "stein", "airm", (1.0, 1.0)],
    },
    cv=4,
).fit(train, train_labels)
print(search.best_params_)
print(f"{search.score(test, test_labels):.1%} of the test digits are right")

# %%
# The features matter more than the divergence, but both matter:

results = search.cv_results_
table = results["mean_test_score"].reshape(4, 2)  # divergences by features
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 5), layout="constrained")
image = left.imshow(100 * table, cmap="cividis", aspect="auto")
left.set_xticks([0, 1], ["grey value, slopes", "and where in the image"])
left.set_yticks(range(4), ["log-Euclidean", "Stein", "AIRM", "(1, 1)"])
for (row, column), value in np.ndenumerate(table):
    dark = value < table.mean()
    left.text(
        column, row, f"{value:.1%}", ha="center", va="center", color="white" if dark else "black"
    )
left.set_title("accuracy in cross-validation")
ConfusionMatrixDisplay.from_predictions(
    test_labels, search.predict(test), ax=right, colorbar=False, cmap="Blues"
)
right.set_title("the best, on digits it has not seen")
plt.show()
