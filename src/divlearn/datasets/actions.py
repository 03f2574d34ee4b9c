"""Actions in videos: tracks of body joints, and tracks of the class scores of two networks."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divlearn.arrays import RealArray
from divlearn.datasets.dataset import NOT_STATED, Dataset, Split, note_difference
from divlearn.datasets.files.regular import open_regular
from divlearn.datasets.folders import PathLike, Source, natural_key, subfolders
from divlearn.datasets.stored import read_arrays
from divlearn.descriptors.fusion import BlockDiagonal
from divlearn.descriptors.gaussian import GaussianEmbedding
from divlearn.descriptors.kernel import RBFKernelDescriptor

__all__ = ["load_hmdb", "load_jhmdb", "load_jhmdb_joints"]

_JHMDB_PAGE = "the JHMDB page of the Max Planck Institute for Intelligent Systems, Tübingen"
_SCORES = (
    "<action>/<video>.npz with the arrays rgb and flow, shape (n_frames, n_classes), and the "
    "published splits as splits/<action>_test_split<1, 2 or 3>.txt"
)
_JOINTS = Source(
    name="JHMDB joints",
    folder="jhmdb_joints",
    layout=(
        "train_<k>.npz and test_<k>.npz for the splits k = 1, 2, 3, with the arrays joints "
        "(n_frames in all, n_joints, 2), lengths (n_videos,) and labels (n_videos,)"
    ),
    origin=f"{_JHMDB_PAGE}, and write its joint positions as these arrays",
)
_JHMDB = Source("JHMDB", "jhmdb", _SCORES, f"{_JHMDB_PAGE}, and compute scores of its videos")
_HMDB = Source(
    name="HMDB",
    folder="hmdb",
    layout=_SCORES,
    origin="the HMDB page of the Serre Lab, Brown University, and compute scores of its videos",
)
_JHMDB_CITATION = (
    'H. Jhuang, J. Gall, S. Zuffi, C. Schmid and M. J. Black, "Towards understanding action '
    'recognition", ICCV 2013'
)
_SPLITS = (1, 2, 3)
_LIMIT = 2**28  # bytes that the arrays of one file may take
_LONGEST_SPLIT = 2**20  # bytes of a text file; the published ones have a few thousand


def load_jhmdb_joints(path: PathLike | None = None) -> Dataset:
    """JHMDB: tracks of 15 body joints in 609 videos of 14 actions, as 31 x 31 Gaussian embeddings.

    Parameters
    ----------
    path : str or path-like, optional
        Folder with the files ``train_<k>.npz`` and ``test_<k>.npz`` for k = 1, 2, 3; the sub-folder
        jhmdb_joints of the folder that the environment variable DIVLEARN_DATA names by default.
        Nothing is downloaded.

    Returns
    -------
    Dataset
        Labels are the names of the actions. A series has x and y of the first joint as its first
        two channels, then those of the second one, and so on. The three splits are official.

    Notes
    -----
    Each split has the same 609 videos, which are recognised by their tracks: the data set holds
    them once, in the order of the first split, training part first. A video that only some splits
    have would be there too, used by those splits alone.

    Videos have 15 to 40 frames but 30 channels, and joints that hardly move, so that sample
    covariances are singular or nearly so. Positions are in units of about the size of a person;
    errors of 0.01 of that are allowed for, which makes all of them definite. Of floors from 1e-5 to
    0.1, with or without shrinkage, it is the best or among the best in cross-validation on the
    training part of the first split, with random folds (Gaussian SVM on tangent vectors 81.5 %,
    against 80.1 % for shrinkage by OAS) and with folds that hold out clusters of similar videos
    (57.3 against 47.5 %), which is nearer to what the test parts ask: they have other videos.

    Examples
    --------
    >>> joints = load_jhmdb_joints("data/jhmdb_joints")  # doctest: +SKIP
    >>> joints.matrices.shape  # doctest: +SKIP
    (609, 31, 31)
    """
    folder = _JOINTS.find_folder(path)
    files = [folder / f"{part}_{k}.npz" for k in _SPLITS for part in ("train", "test")]
    if missing := [file.name for file in files if not file.is_file()]:
        raise _JOINTS.missing(f"{folder} lacks {', '.join(missing)}")
    parts = [_read_joints(file) for file in files]
    _check_joints(files, parts)
    videos = _Videos()
    splits = tuple(
        videos.add_split(train, test) for train, test in zip(parts[::2], parts[1::2], strict=True)
    )
    labels = np.array(videos.labels)
    return Dataset(
        name="JHMDB joints",
        labels=labels,
        citation=_JHMDB_CITATION,
        terms=NOT_STATED,
        series=videos.series,
        descriptor=GaussianEmbedding(noise=0.01),
        official_splits=splits,
        notes=note_difference("21 actions", f"{len(np.unique(labels))} actions"),
    )


_Tracks = list[tuple[RealArray, str]]


class _Videos:
    """Different videos in the order they were first met."""

    def __init__(self) -> None:
        self.series: list[RealArray] = []
        self.labels: list[str] = []
        self._index: dict[tuple[bytes, str, int], int] = {}

    def add_split(self, train: _Tracks, test: _Tracks) -> Split:
        # Two equal videos of one split are two; the same one in two splits is one.
        met: Counter[tuple[bytes, str]] = Counter()
        return self._add(train, met), self._add(test, met)

    def _add(self, tracks: _Tracks, met: Counter[tuple[bytes, str]]) -> NDArray[np.intp]:
        indices = []
        for series, label in tracks:
            video = series.tobytes(), label
            key = (*video, met[video])
            met[video] += 1
            if key not in self._index:
                self._index[key] = len(self.series)
                self.series.append(series)
                self.labels.append(label)
            indices.append(self._index[key])
        return np.sort(np.array(indices, dtype=np.intp))


def _read_joints(path: Path) -> _Tracks:
    joints, lengths, labels = read_arrays(path, ("joints", "lengths", "labels"), _LIMIT)
    if joints.ndim != 3 or joints.shape[2] != 2 or not joints.size:
        raise ValueError(
            f"{path}: joints have shape {joints.shape}, must have (n_frames in all, n_joints, 2), "
            "x and y of each; write it again"
        )
    if joints.dtype.kind not in "iuf" or not np.isfinite(joints).all():
        raise ValueError(
            f"{path}: joints have dtype {joints.dtype}, must be finite numbers; write it again"
        )
    _check_lengths(path, lengths, len(joints), labels)
    flat = joints.astype(np.float64).reshape(len(joints), -1)
    videos = np.split(flat, np.cumsum(lengths)[:-1])
    return [(video.T, label) for video, label in zip(videos, _as_text(path, labels), strict=True)]


def _check_lengths(path: Path, lengths: NDArray[Any], n_frames: int, labels: NDArray[Any]) -> None:
    if labels.shape != lengths.shape or lengths.ndim != 1 or not len(labels):
        raise ValueError(
            f"{path}: lengths and labels have shapes {lengths.shape} and {labels.shape}, must have "
            "one entry for each video; write it again"
        )
    # Each on its own first: a sum that overflows could be any number.
    possible = lengths.dtype.kind in "iu" and lengths.min() >= 2 and lengths.max() <= n_frames
    if not possible or lengths.sum() != n_frames:
        raise ValueError(
            f"{path}: lengths are {lengths.tolist()!s:.80}, must be integers >= 2 that add up to "
            f"the {n_frames} frames of joints; write it again"
        )


def _as_text(path: Path, labels: NDArray[Any]) -> list[str]:
    if labels.dtype.kind != "S":
        return [str(label) for label in labels]
    try:
        return [label.decode("utf8") for label in labels.tolist()]
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}: the label {error.object!r:.80} must be text in UTF-8; write it again"
        ) from error


def _check_joints(files: list[Path], parts: list[_Tracks]) -> None:
    """Refuse files whose videos have another number of joints than those of the first file."""
    numbers = [len(tracks[0][0]) // 2 for tracks in parts]
    for file, number in zip(files, numbers, strict=True):
        if number != numbers[0]:
            raise ValueError(
                f"{file}: its videos have {number} joints, must have {numbers[0]}, as those of "
                f"{files[0].name}; write it again"
            )


def load_jhmdb(path: PathLike | None = None) -> Dataset:
    r"""JHMDB: per-frame class scores of an appearance and a motion network, as 42 x 42 kernels.

    Parameters
    ----------
    path : str or path-like, optional
        Folder laid out as in Notes; the sub-folder jhmdb of the folder that the environment
        variable DIVLEARN_DATA names by default. Nothing is downloaded.

    Returns
    -------
    Dataset
        Labels are the names of the actions. A sample is a pair of series, the scores of the classes
        along the frames for each network; the descriptor joins the kernel matrices of both as the
        blocks of one. The three splits are official.

    Notes
    -----
    The scores have to be computed from the published videos by networks of one's own, for instance
    a two-stream model with one stream for frames and one for optical flow. Each video is a file
    ``<action>/<video>.npz`` with the arrays ``rgb`` and ``flow``, real numbers of shape (n_frames,
    n_classes); the numbers of frames may differ. Write it with `numpy.savez`.

    The splits are the published text files, ``splits/<action>_test_split<k>.txt`` for k = 1, 2, 3.
    Their lines are ``<video>.avi <use>``, where the use is 1 for training, 2 for testing and 0 for
    neither.

    The published data has 928 videos of 21 actions; the paper counts 955.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> scores = np.random.default_rng(0).random((40, 21))
    >>> with TemporaryDirectory() as folder:
    ...     for name in ("wave", "splits"):
    ...         (Path(folder) / name).mkdir()
    ...     for name in ("one", "two"):
    ...         np.savez(f"{folder}/wave/{name}.npz", rgb=scores, flow=scores[1:])
    ...     for k in (1, 2, 3):
    ...         split = Path(folder) / "splits" / f"wave_test_split{k}.txt"
    ...         _ = split.write_text("one.avi 1\ntwo.avi 2\n")
    ...     jhmdb = load_jhmdb(folder)
    >>> jhmdb.matrices.shape
    (2, 42, 42)
    """
    return _load_scores(_JHMDB, path, "928 videos of 21 actions", _JHMDB_CITATION, NOT_STATED)


def load_hmdb(path: PathLike | None = None) -> Dataset:
    """HMDB: per-frame class scores of an appearance and a motion network, as 102 x 102 kernels.

    Parameters
    ----------
    path : str or path-like, optional
        Folder laid out as for `load_jhmdb`; the sub-folder hmdb of the folder that the environment
        variable DIVLEARN_DATA names by default. Nothing is downloaded.

    Returns
    -------
    Dataset
        As of `load_jhmdb`, of 6766 videos of 51 actions.

    Examples
    --------
    >>> hmdb = load_hmdb("data/hmdb")  # doctest: +SKIP
    >>> hmdb.matrices.shape[1:]  # doctest: +SKIP
    (102, 102)
    """
    citation = (
        'H. Kuehne, H. Jhuang, E. Garrote, T. Poggio and T. Serre, "HMDB: a large video database '
        'for human motion recognition", ICCV 2011'
    )
    terms = "Creative Commons Attribution 4.0, by the home page of HMDB"
    return _load_scores(_HMDB, path, "6766 videos of 51 actions", citation, terms)


def _load_scores(
    source: Source, path: PathLike | None, published: str, citation: str, terms: str
) -> Dataset:
    folder = source.find_folder(path)
    actions = [action for action in subfolders(folder) if action.name != "splits"]
    files = [
        file for action in actions
        for file in sorted(action.glob("[!.]*.npz"), key=natural_key)
    ]  # fmt: skip
    if not files:
        raise source.missing(f"{folder} holds no files <action>/<video>.npz")
    splits = tuple(_official_split(source, folder, files, k) for k in _SPLITS)
    series: list[Any] = []
    for file in files:
        series.append(_read_scores(file, series[0] if series else None))
    labels = np.array([file.parent.name for file in files])
    found = f"{len(files)} videos of {len(np.unique(labels))} actions"
    return Dataset(
        name=source.name,
        labels=labels,
        citation=citation,
        terms=terms,
        series=series,
        descriptor=BlockDiagonal(RBFKernelDescriptor()),
        official_splits=splits,
        notes=note_difference(published, found),
    )


def _read_scores(path: Path, first: tuple[RealArray, ...] | None) -> tuple[RealArray, ...]:
    """Tracks of both streams, shape (n_classes, n_frames), as many as the first video has."""
    names = ("rgb", "flow")
    streams = read_arrays(path, names, _LIMIT)
    for s, (name, scores) in enumerate(zip(names, streams, strict=True)):
        if scores.ndim != 2 or not scores.size or scores.dtype.kind not in "iuf":
            raise ValueError(
                f"{path}: {name} has shape {scores.shape} and dtype {scores.dtype}, must be real "
                "numbers of shape (n_frames, n_classes); write it again"
            )
        if not np.isfinite(scores).all():
            raise ValueError(f"{path}: {name} has NaN or infinite scores; compute it again")
        if first is not None and scores.shape[1] != len(first[s]):
            raise ValueError(
                f"{path}: {name} has the scores of {scores.shape[1]} classes, must have those of "
                f"{len(first[s])}, as in the first video; compute it again"
            )
    return tuple(scores.astype(np.float64).T for scores in streams)


def _official_split(source: Source, folder: Path, files: list[Path], k: int) -> Split:
    index = {(file.parent.name, file.stem): i for i, file in enumerate(files)}
    parts: dict[str, list[int]] = {"1": [], "2": []}
    for action in dict.fromkeys(file.parent.name for file in files):
        path = folder / "splits" / f"{action}_test_split{k}.txt"
        if not path.is_file():
            raise source.missing(f"{path} does not exist")
        for video, use in _read_split(path).items():
            if use == "0":
                continue
            if (action, video) not in index:
                raise source.missing(f"{path} lists {video}, but {action}/{video}.npz is not there")
            parts[use].append(index[action, video])
    for use, name in (("1", "training"), ("2", "test")):
        if not parts[use]:
            raise ValueError(f"{source.name}: split {k} has no {name} videos; check its files")
    return np.sort(np.array(parts["1"])), np.sort(np.array(parts["2"]))


def _read_split(path: Path) -> dict[str, str]:
    """Use of each video, by its name without suffix."""
    uses: dict[str, str] = {}
    for number, line in enumerate(_read_text(path).splitlines(), 1):
        name, _, use = line.strip().rpartition(" ")
        video = name.strip().removesuffix(".avi")
        if not line.strip():
            continue
        if not video or use not in ("0", "1", "2"):
            raise ValueError(
                f"{path}, line {number} is {line!r:.80}, must be <video>.avi and 0, 1 or 2; take "
                "the file as published"
            )
        if video in uses:
            raise ValueError(
                f"{path}, line {number} has {video} for a second time; take the file as published"
            )
        uses[video] = use
    return uses


def _read_text(path: Path) -> str:
    with open_regular(path, str(path)) as file:
        content = file.read(_LONGEST_SPLIT + 1)
    if len(content) > _LONGEST_SPLIT:
        raise ValueError(
            f"{path} has more than {_LONGEST_SPLIT} bytes, must be a list of videos with <= "
            f"{_LONGEST_SPLIT}; take the file as published"
        )
    return content.decode("utf8", errors="replace")
