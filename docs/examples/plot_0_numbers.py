"""
Predict a number from a covariance matrix
=========================================

How old is the person behind these recordings? How loaded is this machine? Each sample is a
covariance matrix, the answer is a number, and `IDDLRegressor` predicts it from divergences to a few
matrices that it learns.
"""

# %%
# We simulate recordings of eight channels. With age, the power of three sources grows or falls. The
# powers also vary from person to person, and each recording is short, so covariances are noisy.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from divlearn import IDDLRegressor
from divlearn.geometry import logm

rng = np.random.default_rng(0)
n_people, n_channels, n_times = 400, 8, 100
age = rng.uniform(20, 80, n_people)
powers = np.exp(0.2 * rng.standard_normal((n_people, n_channels)))
years = (age - 50) / 30
powers[:, 0] *= np.exp(0.8 * years)
powers[:, 1] *= np.exp(-0.8 * years)
powers[:, 2] *= np.exp(-(years**2))
mixing = rng.standard_normal((n_channels, n_channels))
sources = np.sqrt(powers)[:, :, None] * rng.standard_normal((n_people, n_channels, n_times))
recordings = mixing @ sources
X = recordings @ recordings.mT / n_times

# %%
# Beside it stands the usual answer: ridge regression on matrix logarithms.

X_train, X_test, age_train, age_test = train_test_split(X, age, random_state=0)
upper = np.triu_indices(n_channels)
usual = make_pipeline(
    FunctionTransformer(lambda matrices: logm(matrices)[:, *upper]),
    StandardScaler(),
    RidgeCV(np.logspace(-2, 4, 13)),
)
learned = IDDLRegressor(random_state=0)
predicted = {}
for name, model in {"ridge on logarithms": usual, "IDDLRegressor": learned}.items():
    predicted[name] = model.fit(X_train, age_train).predict(X_test)
    errors = np.abs(predicted[name] - age_test)
    score = model.score(X_test, age_test)
    print(f"{name}: off by {errors.mean():.1f} years on average, R^2 {score:.2f}")
print(learned.message_)

# %%
# Predictions for people that neither has seen:

figure, axes = plt.subplots(1, 2, figsize=(10, 4.5), sharey=True, layout="constrained")
for ax, (name, ages) in zip(axes, predicted.items(), strict=True):
    ax.axline((20, 20), slope=1, color="gray", linewidth=1)
    ax.scatter(age_test, ages, s=14)
    ax.set(title=name, xlabel="age", ylabel="predicted age")
plt.show()
