"""Answers about data: which divergence, which classifier, how sure, and which defects."""

from divlearn.judge.answer import NamedScore, RuleScore, WhichDivergence
from divlearn.judge.channels import ChannelImportance, ChannelRow, channel_importance
from divlearn.judge.doctor import Diagnosis, Finding, examine
from divlearn.judge.evaluation import Evaluation, Row, default_classifiers, evaluate
from divlearn.judge.maps import PlaneMap, plane_map
from divlearn.judge.reject import predict_or_reject
from divlearn.judge.significance import PairedComparison
from divlearn.judge.which import which_divergence
from divlearn.nearest.plane import NAMED

__all__ = [
    "NAMED",
    "ChannelImportance",
    "ChannelRow",
    "Diagnosis",
    "Evaluation",
    "Finding",
    "NamedScore",
    "PairedComparison",
    "PlaneMap",
    "Row",
    "RuleScore",
    "WhichDivergence",
    "channel_importance",
    "default_classifiers",
    "evaluate",
    "examine",
    "plane_map",
    "predict_or_reject",
    "which_divergence",
]
