"""Questions about data: which divergence, which classifier, how sure, and what is wrong."""

from divlearn.baselines.plane import NAMED
from divlearn.judge.doctor import Diagnosis, Finding, examine
from divlearn.judge.evaluation import (
    Evaluation,
    HeldOut,
    Row,
    default_classifiers,
    evaluate,
    held_out_predictions,
)
from divlearn.judge.maps import PlaneMap, plane_map
from divlearn.judge.significance import (
    PairedComparison,
    compare_paired,
    p_above,
    share_error,
    share_error_of,
)
from divlearn.judge.which import NamedScore, WhichDivergence, which_divergence

__all__ = [
    "NAMED", "Diagnosis", "Evaluation", "Finding", "HeldOut", "NamedScore", "PairedComparison",
    "PlaneMap", "Row", "WhichDivergence", "compare_paired", "default_classifiers", "evaluate",
    "examine", "held_out_predictions", "p_above", "plane_map", "share_error", "share_error_of",
    "which_divergence",
]  # fmt: skip
