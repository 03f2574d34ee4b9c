"""
Regimes of a market, from rolling covariances
=============================================

In a crisis prices move more, and they move together. Covariances of recent returns show this. Which
divergence compares them best is hard to judge on time series: overlapping windows resemble each
other whatever the market does.
"""

# %%
# We simulate daily returns of eight assets over eleven years. The market switches between three
# regimes that last for months: calm, a rotation between two groups of assets, and a crisis. Returns
# have fat tails. Every five days we compute the covariance of the last 20 daily returns. Its label
# is the regime of the last day.

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import ListedColormap
from sklearn.model_selection import KFold, TimeSeriesSplit, cross_val_score

from divlearn import DivergenceKNN, DivergenceMDM

rng = np.random.default_rng(0)
n_days, n_assets, window, step = 2800, 8, 20, 5
names = ["calm", "rotation", "crisis"]
regime = np.zeros(n_days, dtype=int)
for day in range(1, n_days):
    switch = rng.integers(1, 3) if rng.random() < 1 / 60 else 0
    regime[day] = (regime[day - 1] + switch) % 3

together, apart = np.ones(n_assets), np.repeat([1.0, -1.0], n_assets // 2)
own = np.diag(rng.uniform(0.5, 1.5, n_assets))
covariances = np.stack(
    [
        own + 0.3 * np.outer(together, together),
        own + 0.15 * np.outer(together, together) + 0.4 * np.outer(apart, apart),
        1.5 * own + 1.2 * np.outer(together, together),
    ]
)
tails = np.sqrt(4 / rng.chisquare(6, n_days))
normal = rng.standard_normal((n_days, n_assets))
factors = np.linalg.cholesky(covariances)
returns = tails[:, None] * np.einsum("tij,tj->ti", factors[regime], normal)

ends = np.arange(window, n_days + 1, step)
X = np.stack([np.cov(returns[end - window : end].T) for end in ends])
y = regime[ends - 1]

# %%
# Folds that respect time
# -----------------------
# Windows that end five days apart share three quarters of their days. Shuffled folds put one of
# them into training and the other into testing, and a nearest neighbour finds it. Folds that train
# on the past and test on the future, with a gap as long as a window, have no such neighbours.

gap = window // step
future = TimeSeriesSplit(5, gap=gap)
for name, folds in {"shuffled": KFold(5, shuffle=True, random_state=0), "future": future}.items():
    score = cross_val_score(DivergenceKNN(divergence="stein"), X, y, cv=folds).mean()
    print(f"nearest neighbour, {name} folds: {score:.1%}")

# %%
# Which divergence
# ----------------
# We classify by the nearest class mean in several divergences. "choose" compares ten divergences
# on the training data alone, and keeps AIRM unless another is better by two standard errors; here
# it keeps AIRM. Its inner folds must not separate overlapping windows either, so we pass half-years
# as ``groups``.

half_year = ends // 126
models = {name: DivergenceMDM(name) for name in ("reverse-burg", "airm", "stein", "burg")}
models["chosen"] = choose = DivergenceMDM("choose", random_state=0)
for name, model in models.items():
    scores = [
        model.fit(X[train], y[train], groups=half_year[train]).score(X[test], y[test])
        for train, test in future.split(X)
    ]
    error = np.std(scores, ddof=1) / np.sqrt(len(scores))
    print(f"{name:>12}: {np.mean(scores):.1%} +- {error:.1%}")

# %%
# A regime, week by week
# ----------------------
# Trained on the first eight years, the classifier follows the market through the last three. It
# detects a change of regime late, since for weeks a window still contains days of the old regime.

first = int(0.72 * len(X))
choose.fit(X[:first], y[:first], groups=half_year[:first])
print(f"chosen on the first eight years: {choose.divergence_.name}")
later = slice(first + gap, None)
share = choose.score(X[later], y[later])
years = ends[later] / 252

colors = ["#009e73", "#e69f00", "#d55e00"]
figure, panels = plt.subplots(
    3, 1, figsize=(10, 6.5), sharex=True, layout="constrained", height_ratios=[1, 0.2, 1]
)
days = np.arange(ends[later][0], n_days)
panels[0].plot(days / 252, returns[days].mean(axis=1), color="#555555", linewidth=0.6)
panels[0].set(ylabel="mean return", title="the market in the last three years")
extent = (days[0] / 252, days[-1] / 252, 0, 1)
panels[1].imshow(regime[days][None], aspect="auto", cmap=ListedColormap(colors), extent=extent)
panels[1].set(ylabel="truth", yticks=[])
panels[2].stackplot(years, choose.predict_proba(X[later]).T, colors=colors, labels=names)
panels[2].set(ylabel="probability", xlabel="year", ylim=(0, 1), xlim=(years[0], years[-1]))
panels[2].set_title(f"what the classifier says: right in {share:.0%} of the weeks")
handles, labels = panels[2].get_legend_handles_labels()
figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
plt.show()
