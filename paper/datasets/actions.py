"""Actions in videos: tracks of body joints, and tracks of the class scores of two networks."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divlearn.datasets import Dataset, Split
from divlearn.descriptors import BlockDiagonal, GaussianEmbedding, RBFKernelDescriptor
from paper.datasets.folders import NOT_STATED, PathLike, find_folder, list_files, need, subfolders

_JHMDB = (
    'H. Jhuang, J. Gall, S. Zuffi, C. Schmid and M. J. Black, "Towards understanding action '
    'recognition", ICCV 2013'
)
_SPLITS = (1, 2, 3)


def load_jhmdb_joints(path: PathLike | None = None) -> Dataset:
    """JHMDB: tracks of 15 body joints in 609 videos of 14 actions, as 31 x 31 Gaussian embeddings.

    The files are ``train_<k>.npz`` and ``test_<k>.npz`` for the official splits k = 1, 2, 3, each
    with the arrays joints (n_frames in all, n_joints, 2), lengths and labels (n_videos,). Each
    split has the same videos, which are recognised by their tracks and kept once.

    Videos have 15 to 40 frames but 30 channels, so that sample covariances are singular. Positions
    are in units of about the size of a person; errors of 0.01 of that are allowed for. Of floors
    from 1e-5 to 0.1, with or without shrinkage, it is the best or among the best in
    cross-validation on the training part of the first split, with random folds (Gaussian SVM on
    tangent vectors 81.5 %, against 80.1 % for shrinkage by OAS) and with folds that hold out
    clusters of similar videos (57.3 against 47.5 %).
    """
    folder = find_folder(path, "jhmdb_joints")
    files = [folder / f"{part}_{k}.npz" for k in _SPLITS for part in ("train", "test")]
    parts = [_read_joints(file) for file in need(files, folder, "train_<k>.npz, test_<k>.npz")]
    index: dict[tuple[bytes, str, int], int] = {}
    series: list[NDArray[np.float64]] = []

    def add(tracks: list[tuple[NDArray[np.float64], str]], met: Counter[Any]) -> NDArray[np.intp]:
        rows = []
        for track, label in tracks:
            video = track.tobytes(), label
            key = (*video, met[video])
            met[video] += 1
            if key not in index:
                index[key] = len(series)
                series.append(track)
            rows.append(index[key])
        return np.sort(np.array(rows, dtype=np.intp))

    splits = []
    for train, test in zip(parts[::2], parts[1::2], strict=True):
        met: Counter[Any] = Counter()  # equal videos of one split are two, of two splits one
        splits.append((add(train, met), add(test, met)))
    return Dataset(
        name="JHMDB joints",
        labels=np.array([label for _, label, _ in index]),
        citation=_JHMDB,
        terms=NOT_STATED,
        series=series,
        descriptor=GaussianEmbedding(noise=0.01),
        official_splits=tuple(splits),
    )


def _read_joints(path: Path) -> list[tuple[NDArray[np.float64], str]]:
    """Return a track of shape (2 n_joints, n_frames) and a label for each video."""
    with np.load(path) as arrays:
        joints, lengths, labels = (arrays[name] for name in ("joints", "lengths", "labels"))
    if lengths.sum() != len(joints) or len(lengths) != len(labels):
        raise ValueError(
            f"{path}: lengths add up to {lengths.sum()} frames of {len(lengths)} videos, must be "
            f"{len(joints)} frames of {len(labels)} videos; write it again"
        )
    flat = joints.astype(np.float64).reshape(len(joints), -1)
    videos = np.split(flat, np.cumsum(lengths)[:-1])
    return [(video.T, str(label)) for video, label in zip(videos, labels.astype(str), strict=True)]


def load_jhmdb(path: PathLike | None = None) -> Dataset:
    """JHMDB: per-frame class scores of an appearance and a motion network, as 42 x 42 kernels.

    The scores have to be computed from the published videos by networks of one's own. Each video is
    a file ``<action>/<video>.npz`` with the arrays ``rgb`` and ``flow`` of shape (n_frames,
    n_classes). The official splits are the published files ``splits/<action>_test_split<k>.txt``,
    whose lines are ``<video>.avi <use>`` with 1 for training, 2 for testing and 0 for neither. The
    published data has 928 videos of 21 actions; the paper counts 955.
    """
    return _load_scores("JHMDB", "jhmdb", path, _JHMDB, NOT_STATED)


def load_hmdb(path: PathLike | None = None) -> Dataset:
    """HMDB: the same for 6766 videos of 51 actions, as 102 x 102 kernels; see `load_jhmdb`."""
    citation = (
        'H. Kuehne, H. Jhuang, E. Garrote, T. Poggio and T. Serre, "HMDB: a large video database '
        'for human motion recognition", ICCV 2011'
    )
    terms = "Creative Commons Attribution 4.0, by the home page of HMDB"
    return _load_scores("HMDB", "hmdb", path, citation, terms)


def _load_scores(name: str, sub: str, path: PathLike | None, citation: str, terms: str) -> Dataset:
    folder = find_folder(path, sub)
    actions = [action for action in subfolders(folder) if action.name != "splits"]
    files = [file for action in actions for file in list_files(action, ".npz")]
    need(files, folder, "<action>/<video>.npz with the arrays rgb and flow")
    return Dataset(
        name=name,
        labels=np.array([file.parent.name for file in files]),
        citation=citation,
        terms=terms,
        series=[_read_scores(file) for file in files],
        descriptor=BlockDiagonal(RBFKernelDescriptor()),
        official_splits=tuple(_read_split(folder, files, k) for k in _SPLITS),
    )


def _read_scores(path: Path) -> tuple[NDArray[np.float64], ...]:
    with np.load(path) as arrays:
        return tuple(arrays[name].astype(np.float64).T for name in ("rgb", "flow"))


def _read_split(folder: Path, files: list[Path], k: int) -> Split:
    index = {(file.parent.name, file.stem): i for i, file in enumerate(files)}
    parts: dict[str, list[int]] = {"0": [], "1": [], "2": []}
    for action in dict.fromkeys(file.parent.name for file in files):
        path = folder / "splits" / f"{action}_test_split{k}.txt"
        for line in path.read_text().splitlines():
            if line.strip():
                video, _, use = line.strip().rpartition(" ")
                key = action, video.strip().removesuffix(".avi")
                if use not in parts or (use != "0" and key not in index):
                    raise ValueError(
                        f"{path}: the line {line!r} must be <video>.avi and 0, 1 or 2, of a video "
                        f"that is there as {action}/<video>.npz"
                    )
                if use != "0":
                    parts[use].append(index[key])
    return np.sort(np.array(parts["1"], np.intp)), np.sort(np.array(parts["2"], np.intp))
