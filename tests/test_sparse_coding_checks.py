"""scikit-learn's checks of KernelSparseCoding."""

from __future__ import annotations

from lifted import lift_spd, lifted
from sklearn.utils.estimator_checks import parametrize_with_checks

from divlearn.baselines import KernelSparseCoding


@parametrize_with_checks(
    [lifted(KernelSparseCoding(bandwidth=0.5, penalty=0.01, max_iter=1, random_state=0), lift_spd)]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)
