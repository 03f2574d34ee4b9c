"""scikit-learn's checks of RSPDL."""

from __future__ import annotations

from lifted import lift_spd, lifted
from sklearn.utils.estimator_checks import parametrize_with_checks

from divlearn.baselines import RSPDL


@parametrize_with_checks([lifted(RSPDL(penalty=0.1, max_iter=1, random_state=0), lift_spd)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)
