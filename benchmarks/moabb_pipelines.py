"""divlearn beside pyRiemann in MOABB's evaluations, on data that needs no download.

Run: python benchmarks/moabb_pipelines.py (needs moabb), which writes the table of docs/moabb.md.
"""

from __future__ import annotations

import tempfile
from importlib.metadata import version
from pathlib import Path

import mne
import numpy as np
import sklearn
from machine import machine, machine_line, write_between_markers
from moabb.datasets.fake import FakeDataset
from moabb.evaluations import CrossSessionEvaluation, CrossSubjectEvaluation
from moabb.paradigms import LeftRightImagery
from pyriemann.classification import MDM
from pyriemann.estimation import Covariances
from pyriemann.tangentspace import TangentSpace
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from divlearn import SPDClassifier
from divlearn.nearest import DivergenceMDM

CHANNELS = ("FC3", "FCz", "FC4", "C3", "Cz", "C4", "CP3", "CPz", "CP4")


class FakeImagery(FakeDataset):
    """`FakeDataset`, whose noise gets a 10 Hz rhythm over each motor cortex.

    Imagining a movement weakens the rhythm over the other half of the brain. Where and how strong
    the rhythms are differs between people.
    """

    def _get_single_subject_data(self, subject: int) -> dict:
        sessions = super()._get_single_subject_data(subject)
        random = np.random.default_rng(self.seed + subject)
        for raws in sessions.values():
            for raw in raws.values():
                _add_rhythms(raw, random)
        return sessions


def _add_rhythms(raw: mne.io.RawArray, random: np.random.Generator) -> None:
    places = np.array([info["loc"][:3] for info in raw.info["chs"][: len(CHANNELS)]])
    over = places[[CHANNELS.index("C4"), CHANNELS.index("C3")]]  # weaker for the left, right hand
    over = over + 0.01 * random.standard_normal(over.shape)  # metres
    reach = np.exp(-(((places[:, None] - over) / 0.04) ** 2).sum(axis=2) / 2)
    strength = np.ones((2, raw.n_times))
    for onset, _, hand in mne.find_events(raw, verbose=False):
        end = onset + int(3 * raw.info["sfreq"])
        strength[:, onset:end] = np.exp(0.4 * random.standard_normal((2, 1)))
        strength[hand - 1, onset:end] *= 0.6
    rhythms = random.standard_normal((2, raw.n_times))
    rhythms = mne.filter.filter_data(rhythms, raw.info["sfreq"], 8, 13, verbose=False)
    raw.load_data()
    raw._data[: len(CHANNELS)] += 4e-5 * reach @ (strength * rhythms)


def make_pipelines() -> dict:
    """pyRiemann's two usual pipelines, and two of divlearn, which get the subjects as groups."""
    choose = DivergenceMDM("choose", random_state=0)
    committee = SPDClassifier(random_state=0)
    classifiers = {
        "pyRiemann: MDM": [MDM("riemann")],
        "pyRiemann: tangent space, logistic": [TangentSpace("riemann"), LogisticRegression()],
        'divlearn: DivergenceMDM("choose")': [choose.set_fit_request(groups="subjects")],
        "divlearn: SPDClassifier()": [committee.set_fit_request(groups="subjects")],
    }
    return {name: make_pipeline(Covariances("oas"), *steps) for name, steps in classifiers.items()}


def main() -> None:
    sklearn.set_config(enable_metadata_routing=True)
    dataset = FakeImagery(
        ("left_hand", "right_hand"),
        n_subjects=4,
        n_sessions=2,
        n_runs=1,
        channels=CHANNELS,
        seed=1,
        duration=120,
        n_events=30,
        code="FakeImagery",
    )
    columns = []
    for evaluation in (CrossSessionEvaluation, CrossSubjectEvaluation):
        with tempfile.TemporaryDirectory() as folder:
            results = evaluation(
                LeftRightImagery(fmin=8, fmax=32),
                [dataset],
                random_state=0,
                overwrite=True,
                hdf5_path=folder,
            ).process(make_pipelines())
        people = results.groupby(["pipeline", "subject"])["score"].mean()
        columns.append(people.groupby("pipeline").agg(["mean", "sem"]))
    lines = [
        "| AUC, % | another session | another person |",
        "| --- | --- | --- |",
        *(
            f"| {name} | {_cell(columns[0].loc[name])} | {_cell(columns[1].loc[name])} |"
            for name in make_pipelines()
        ),
        "",
        f"Measured on: {machine_line(machine())}; moabb {version('moabb')}.",
    ]
    table = "\n".join(lines)
    write_between_markers(Path(__file__).parents[1] / "docs" / "moabb.md", table)
    print(table)


def _cell(score) -> str:
    return f"{100 * score['mean']:.1f} +- {100 * score['sem']:.1f}"


if __name__ == "__main__":
    main()
