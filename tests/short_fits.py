"""Few candidates and steps, for tests of what is around a search; names are under divlearn."""

SHORT = {
    "cluster.mixture.TOLERANCE": 1e-2,
    "baselines.log_svm.PENALTIES": {"linear": (10.0,), "rbf": (10.0,)},
    "baselines.log_svm.GAMMAS": (1.0,),
    "baselines.log_svm.VectorClassifier.cv": 2,
    "baselines.coded._PENALTIES": (10.0,),
    "baselines.coded._STEPS": 1,
    "baselines.rspdl._INNER": 10,
    "iddl.base._FEWEST_ATOMS": 0,
}
