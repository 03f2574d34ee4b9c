"""scikit-learn's checks of KernelLLC."""

from __future__ import annotations

from lifted import lift_spd, lifted
from sklearn.utils.estimator_checks import parametrize_with_checks

from divlearn.baselines import KernelLLC


@parametrize_with_checks(
    [lifted(KernelLLC(kernel="stein", bandwidth=0.5, random_state=0), lift_spd)]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)
