"""Loaders on small folders of their layouts, and on the real data where DIVLEARN_DATA names it."""

from __future__ import annotations

import os
import pickle
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from conftest import wishart
from scipy.io import savemat

from divlearn.datasets.actions import load_hmdb, load_jhmdb, load_jhmdb_joints
from divlearn.datasets.brodatz import load_brodatz
from divlearn.datasets.cancer import load_breast, load_myometrium, load_prostate
from divlearn.datasets.files.images import ImageFiles
from divlearn.datasets.folders import Source
from divlearn.datasets.kth_tips2 import load_kth_tips2, load_kth_tips2_authors
from divlearn.datasets.objects import load_rgbd
from divlearn.datasets.stored import load_spd, read_arrays
from divlearn.datasets.virus import load_virus
from divlearn.descriptors.region import RegionCovariance
from divlearn.spd import SPDRepairWarning

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")

LOADERS = {
    "virus": load_virus, "brodatz": load_brodatz, "kth_tips2": load_kth_tips2,
    "kth_tips2_authors": load_kth_tips2_authors, "jhmdb_joints": load_jhmdb_joints,
    "jhmdb": load_jhmdb, "hmdb": load_hmdb, "rgbd": load_rgbd, "breast": load_breast,
    "myometrium": load_myometrium, "prostate": load_prostate,
}  # fmt: skip


def save_image(path: Path, seed: int, shape: tuple[int, ...] = (12, 12)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    Image.fromarray(pixels).save(path)


@pytest.fixture
def reads(monkeypatch) -> Counter[str]:
    """How often each image was read, by its name."""
    counter: Counter[str] = Counter()
    original = ImageFiles.__getitem__

    def counting(self, index):
        if not isinstance(index, slice):
            counter[self.paths[index].name] += 1
        return original(self, index)

    monkeypatch.setattr(ImageFiles, "__getitem__", counting)
    return counter


# --- folders that are not there, or hold something else -------------------------------------------


@pytest.mark.parametrize("folder", LOADERS)
def test_what_was_looked_for_where_and_who_has_it(folder, tmp_path, monkeypatch):
    monkeypatch.delenv("DIVLEARN_DATA", raising=False)
    obtain = "Expected files: .*not downloaded: obtain it from"
    with pytest.raises(FileNotFoundError, match=f"DIVLEARN_DATA is not set.*{folder}.*{obtain}"):
        LOADERS[folder]()
    missing = tmp_path / "missing"
    with pytest.raises(FileNotFoundError, match=f"path={missing} does not exist.*{obtain}"):
        LOADERS[folder](missing)
    monkeypatch.setenv("DIVLEARN_DATA", str(tmp_path))
    with pytest.raises(
        FileNotFoundError, match=f"{tmp_path}/{folder}, the sub-folder {folder} of .* not exist"
    ):
        LOADERS[folder]()
    (tmp_path / folder).mkdir()
    with pytest.raises(FileNotFoundError, match=f"{tmp_path}/{folder}.*{obtain}"):
        LOADERS[folder]()


@pytest.mark.parametrize("folder", ["virus", "brodatz", "kth_tips2", "jhmdb_joints", "hmdb"])
def test_a_file_is_no_folder(folder, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match="file is a file, must be a folder"):
        LOADERS[folder](tmp_path / "file")


def test_a_home_folder_is_found(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Source("Leaves", "leaves", "", "").find_folder("~") == tmp_path


# --- Virus ----------------------------------------------------------------------------------------


@pytest.fixture
def virus(tmp_path) -> Path:
    for number in range(1, 13):
        for part in (1, 2):
            for image in (1, 2, 10):
                seed = 100 * number + 10 * part + image
                save_image(tmp_path / f"{number}/{part}/{image}.png", seed, (41, 41))
    return tmp_path


def test_virus(virus, reads):
    save_image(virus / ".trash/1/1.png", 0)
    dataset = load_virus(virus)
    assert dataset.labels.tolist() == [number for number in range(1, 13) for _ in range(6)]
    assert dataset.groups[:7].tolist() == ["1/1"] * 3 + ["1/2"] * 3 + ["2/1"]
    assert [path.name for path in dataset.images.paths[:3]] == ["1.png", "2.png", "10.png"]
    assert dataset.notes[0] == "Published are 15 classes of 100; here are 12 classes of 6."
    assert len(dataset.notes) == 2
    assert [len(train) for train, _ in dataset.splits()] == [48, 48, 48]
    assert reads.total() == 72  # for the note on copies


def test_virus_matrices_are_those_of_the_preset(virus):
    dataset = load_virus(virus)
    expected = RegionCovariance("virus").fit_transform([dataset.images[i] for i in range(72)])
    np.testing.assert_allclose(dataset.matrices, expected, rtol=1e-12)
    assert dataset.matrices.shape == (72, 29, 29)
    other = load_virus(virus, RegionCovariance(["I", "|Ix|"]))
    assert other.matrices.shape == (72, 2, 2)


def test_virus_reports_copies(virus):
    for name in ("1/2/2", "7/1/1"):
        (virus / f"{name}.png").write_bytes((virus / "1/1/1.png").read_bytes())
    (virus / "3/1/2.png").write_bytes((virus / "3/1/1.png").read_bytes())
    note = load_virus(virus).notes[-1]
    assert note == (
        "2 images are there more than once, 1 of them under different labels: "
        "1/1/1.png = 1/2/2.png = 7/1/1.png; 3/1/1.png = 3/1/2.png."
    )


def test_virus_with_a_folder_that_is_no_class(virus):
    save_image(virus / "other/1/1.png", 0)
    with pytest.raises(ValueError, match="other must have the number of a class for a name"):
        load_virus(virus)


def test_virus_with_a_damaged_image(virus):
    (virus / "5/1/2.png").write_bytes(b"\x89PNG")
    with pytest.raises(ValueError, match=r"5/1/2\.png: its content is not the PNG image"):
        load_virus(virus)


# --- Brodatz --------------------------------------------------------------------------------------


@pytest.fixture
def brodatz(tmp_path) -> Path:
    for number in range(1, 12):
        save_image(tmp_path / f"D{number}.gif", number, (64, 80))
    return tmp_path


def test_brodatz(brodatz, reads):
    dataset = load_brodatz(brodatz, n_textures=11)
    assert dataset.labels.tolist() == [number for number in range(1, 12) for _ in range(4)]
    assert [path.name for path in dataset.images.paths] == [f"D{i}.gif" for i in range(1, 12)]
    assert repr(dataset)
    assert len(dataset.splits(train=0.5)) == 5
    assert reads.total() == 0
    assert dataset.matrices.shape == (44, 5, 5)
    assert dataset.matrices.shape == (44, 5, 5)
    reads["D1.gif"] -= 1  # fit looks at the first image
    assert set(reads.values()) == {1}


def test_brodatz_patches_are_in_order(brodatz):
    dataset = load_brodatz(brodatz, patch=20, n_textures=2, features=["I", "|Iy|"])
    image = dataset.images[1].astype(float)
    slopes = np.abs(np.gradient(image, axis=0))
    box = np.s_[20:40, 60:80]
    expected = np.cov(image[box].ravel(), slopes[box].ravel())
    assert dataset.labels.tolist() == [1] * 12 + [2] * 12
    np.testing.assert_allclose(dataset.matrices[12 + 7], expected, rtol=1e-10)


def test_brodatz_images_of_different_sizes_have_as_many_labels(brodatz):
    save_image(brodatz / "D2.gif", 0, (128, 64))
    assert load_brodatz(brodatz, n_textures=2).labels.tolist() == [1] * 4 + [2] * 8


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"n_textures": 0}, ValueError, "n_textures=0 must be >= 1 and <= 112"),
        ({"n_textures": 113}, ValueError, "n_textures=113 must be >= 1 and <= 112"),
        ({"n_textures": 2.0}, TypeError, "n_textures=2.0 must be an integer"),
        ({"n_textures": 13}, FileNotFoundError, "lacks D12.gif, D13.gif of the images that n_text"),
        ({"n_textures": 50}, FileNotFoundError, "lacks D12.gif.* D16.gif and more of the images"),
        ({"n_textures": 1, "patch": 65}, ValueError, "patch=65 must be <= .* 64 x 80"),
        ({"n_textures": 1, "patch": 1}, ValueError, "patch=1 must be >= 2"),
        ({"n_textures": 1, "patch": 2.0}, TypeError, "patch=2.0 must be an integer"),
        ({"n_textures": 1, "features": "brodats"}, ValueError, "features='brodats' must be one of"),
        ({"n_textures": 1, "features": ["I", "Q"]}, ValueError, "'Q'"),
    ],
)
def test_brodatz_that_cannot_be(brodatz, options, error, message):
    with pytest.raises(error, match=message):
        load_brodatz(brodatz, **options)


# --- KTH-TIPS2 ------------------------------------------------------------------------------------


@pytest.fixture
def kth(tmp_path) -> Path:
    for m, material in enumerate(("cork", "linen", "wool")):
        for s, sample in enumerate("abcd"):
            for image in range(2):
                path = tmp_path / material / f"sample_{sample}" / f"{image}.png"
                save_image(path, 100 * m + 10 * s + image, (20, 20, 3))
        (tmp_path / material / "notes").mkdir()
    return tmp_path


def test_kth_tips2(kth, reads):
    dataset = load_kth_tips2(kth)
    assert dataset.labels.tolist() == ["cork"] * 8 + ["linen"] * 8 + ["wool"] * 8
    assert dataset.groups[6:10].tolist() == ["cork/sample_d"] * 2 + ["linen/sample_a"] * 2
    tests = [test.tolist() for _, test in dataset.splits()]
    assert tests == [[2 * s + 8 * m + i for m in range(3) for i in range(2)] for s in range(4)]
    for train, test in dataset.splits():
        assert sorted([*train, *test]) == list(range(24))
        assert not set(dataset.groups[train]) & set(dataset.groups[test])
    assert reads.total() == 0
    assert dataset.matrices.shape == (24, 23, 23)
    assert dataset.notes == (
        "Published are 11 classes of 432, 4 samples each; here are 3 classes of 8, 4 samples each.",
    )


def test_kth_tips2_with_a_sample_missing(kth):
    for image in (kth / "linen" / "sample_c").iterdir():
        image.unlink()
    with pytest.raises(ValueError, match="linen has no images of sample_c, which other materials"):
        load_kth_tips2(kth)


def test_kth_tips2_with_one_sample(tmp_path):
    save_image(tmp_path / "cork/sample_a/0.png", 0, (20, 20, 3))
    with pytest.raises(ValueError, match="the only sample sample_a, must have >= 2"):
        load_kth_tips2(tmp_path)


def test_kth_tips2_authors(tmp_path):
    matrices = wishart(np.random.default_rng(0), 9, 4)
    savemat(
        tmp_path / "demo_dataset.mat",
        {
            "X_train": np.moveaxis(matrices[:6], 0, -1), "train_labels": [[1.0]] * 3 + [[2.0]] * 3,
            "X_test": np.moveaxis(matrices[6:], 0, -1), "test_labels": [[1.0], [2.0], [2.0]],
        },
    )  # fmt: skip
    dataset = load_kth_tips2_authors(tmp_path)
    np.testing.assert_array_equal(dataset.matrices, matrices)
    assert dataset.labels.tolist() == [1, 1, 1, 2, 2, 2, 1, 2, 2]
    ((train, test),) = dataset.splits()
    assert (train.tolist(), test.tolist()) == ([0, 1, 2, 3, 4, 5], [6, 7, 8])


def test_kth_tips2_authors_without_a_split(tmp_path):
    matrices = np.moveaxis(wishart(np.random.default_rng(0), 9, 4), 0, -1)
    savemat(tmp_path / "demo_dataset.mat", {"X": matrices, "labels": np.arange(9)})
    with pytest.raises(ValueError, match="must hold X_train and X_test"):
        load_kth_tips2_authors(tmp_path)


# --- JHMDB joints ---------------------------------------------------------------------------------


def video(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((rng.integers(20, 30), 3, 2)).astype(np.float32)


def save_joints(path: Path, videos: list[int]) -> None:
    tracks = [video(seed) for seed in videos]
    labels = np.array(["wave" if seed % 2 else "clap" for seed in videos])
    lengths = np.array([len(track) for track in tracks])
    np.savez(path, joints=np.concatenate(tracks), lengths=lengths, labels=labels)


JOINT_SPLITS = (([0, 1, 2, 3], [4, 5]), ([4, 2, 1, 5], [0, 3]), ([5, 4, 0, 3], [2, 1]))


@pytest.fixture
def joints(tmp_path) -> Path:
    for k, (train, test) in enumerate(JOINT_SPLITS, 1):
        save_joints(tmp_path / f"train_{k}.npz", train)
        save_joints(tmp_path / f"test_{k}.npz", test)
    return tmp_path


def test_joints_are_one_data_set_with_three_splits(joints):
    dataset = load_jhmdb_joints(joints)
    assert dataset.labels.tolist() == ["clap", "wave"] * 3
    for seed, series in enumerate(dataset.series):
        track = video(seed)
        assert series.dtype == np.float64
        np.testing.assert_array_equal(series[2 * 1 + 1], track[:, 1, 1])  # y of the second joint
        assert series.shape == (6, len(track))
    expected = [(sorted(train), sorted(test)) for train, test in JOINT_SPLITS]
    assert [(train.tolist(), test.tolist()) for train, test in dataset.splits()] == expected
    assert dataset.matrices.shape == (6, 7, 7)
    assert dataset.notes == ("Published are 21 actions; here are 2 actions.",)


def test_joints_of_some_splits_and_equal_videos(joints):
    save_joints(joints / "train_2.npz", [9, 9, 1])
    save_joints(joints / "test_2.npz", [9, 0])
    dataset = load_jhmdb_joints(joints)
    assert len(dataset.labels) == 9  # six, and three that look the same
    train, test = dataset.splits()[1]
    assert (train.tolist(), test.tolist()) == ([1, 6, 7], [0, 8])
    assert dataset.duplicates() == [(6, 7, 8)]


def test_joints_that_never_move_have_errors_of_measurement(joints):
    np.savez(joints / "test_3.npz", joints=np.ones((8, 3, 2)), lengths=[8], labels=["wave"])
    np.testing.assert_allclose(np.linalg.det(load_jhmdb_joints(joints).matrices[6]), 1e-4**6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"joints": np.zeros((5, 6))}, r"joints have shape \(5, 6\)"),
        ({"joints": np.zeros((5, 3, 3))}, r"joints have shape \(5, 3, 3\), must have"),
        ({"joints": np.zeros((5, 0, 2))}, r"joints have shape \(5, 0, 2\), must have"),
        ({"joints": np.zeros((5, 4, 2))}, r"have 4 joints, must have 3, as those of train_1\.npz"),
        ({"joints": np.full((5, 3, 2), np.nan)}, "must be finite"),
        ({"joints": np.full((5, 3, 2), "a")}, "dtype <U1, must be finite"),
        ({"lengths": np.array([3, 3])}, "add up to the 5 frames"),
        ({"lengths": np.array([6, -1])}, "integers >= 2 that add up"),
        ({"lengths": np.array([2.0, 3.0])}, r"lengths are \[2.0, 3.0\], must be integers"),
        ({"lengths": np.array(["2", "3"])}, r"lengths are \['2', '3'\], must be integers"),
        ({"lengths": np.array([0, 5])}, "integers >= 2 that add up"),
        (
            {"lengths": np.array([2**62] * 4 + [5]), "labels": np.array(list("abcde"))},
            "lengths are .* that add up to the 5 frames",
        ),
        ({"labels": np.array([b"a", b"\xff"])}, r"label b'\\xff' must be text in UTF-8"),
        ({"lengths": np.array([2, 2, 1])}, r"shapes \(3,\) and \(2,\), must have one entry"),
        ({"labels": np.array(["a", None], dtype=object)}, "objects are never unpickled"),
    ],
)
def test_joints_that_cannot_be(joints, change, message):
    arrays = {
        "joints": np.zeros((5, 3, 2)), "lengths": np.array([2, 3]), "labels": np.array(["a", "b"]),
    }  # fmt: skip
    np.savez(joints / "test_2.npz", **{**arrays, **change})
    with pytest.raises(ValueError, match=rf"test_2\.npz: .*{message}"):
        load_jhmdb_joints(joints)


def test_joints_with_labels_of_bytes(joints):
    for path in joints.iterdir():
        arrays = dict(np.load(path))
        np.savez(path, **{**arrays, "labels": arrays["labels"].astype("S")})
    assert load_jhmdb_joints(joints).labels.tolist() == ["clap", "wave"] * 3


def test_joints_that_are_missing(joints):
    (joints / "test_3.npz").unlink()
    with pytest.raises(FileNotFoundError, match=r"lacks test_3\.npz.*lengths \(n_videos,\)"):
        load_jhmdb_joints(joints)


# --- class scores of two networks -----------------------------------------------------------------

VIDEOS = {"run": ["r#1_(x)", "r2", "r10"], "wave": ["w1", "w2"]}


@pytest.fixture
def scores(tmp_path) -> Path:
    rng = np.random.default_rng(0)
    (tmp_path / "splits").mkdir()
    for action, videos in VIDEOS.items():
        (tmp_path / action).mkdir()
        for name in videos:
            n_frames = rng.integers(20, 30)
            path = tmp_path / action / f"{name}.npz"
            rgb, flow = rng.random((n_frames, 4)), rng.random((n_frames - 1, 4))
            np.savez(path, rgb=rgb.astype(np.float32), flow=flow)
        for k in (1, 2, 3):
            lines = [f"{name}.avi {(i + k) % 3} " for i, name in enumerate(videos)]
            (tmp_path / "splits" / f"{action}_test_split{k}.txt").write_text("\n".join(lines))
    return tmp_path


@pytest.mark.parametrize("load", [load_jhmdb, load_hmdb])
def test_scores(scores, load):
    dataset = load(scores)
    assert dataset.labels.tolist() == ["run"] * 3 + ["wave"] * 2
    assert [len(stream) for stream in dataset.series[0]] == [4, 4]
    rgb = np.load(scores / "run" / "r10.npz")["rgb"]
    np.testing.assert_array_equal(dataset.series[1][0], rgb.T.astype(np.float64))
    assert dataset.series[1][0].dtype == np.float64
    assert dataset.matrices.shape == (5, 8, 8)
    assert not dataset.matrices[:, :4, 4:].any()
    assert "here are 5 videos of 2 actions" in dataset.notes[0]


def test_scores_follow_the_published_splits(scores):
    splits = [(train.tolist(), test.tolist()) for train, test in load_jhmdb(scores).splits()]
    assert splits == [([2, 3], [0, 4]), ([1], [2, 3]), ([0, 4], [1])]  # r2, r10, r#1, w1, w2


def test_scores_of_unused_videos_need_not_be_there(scores):
    (scores / "run" / "r10.npz").unlink()  # used by the splits 2 and 3
    with pytest.raises(FileNotFoundError, match=r"run_test_split2.txt lists r10, but run/r10.npz"):
        load_jhmdb(scores)
    for k in (1, 2, 3):
        path = scores / "splits" / f"run_test_split{k}.txt"
        path.write_text("r#1_(x).avi 1\n\nr2.avi 2\nr10.avi 0\n")
    assert len(load_jhmdb(scores).labels) == 4


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("w1.avi 3", "line 2 is 'w1.avi 3', must be"),
        ("w1.avi", "line 2 is 'w1.avi', must be"),
        ("1", "line 2 is '1', must be"),
        ("w2.avi 1", "line 2 has w2 for a second time"),
    ],
)
def test_split_files_that_cannot_be(scores, line, message):
    (scores / "splits" / "wave_test_split1.txt").write_text(f"w2.avi 1\n{line}\n")
    with pytest.raises(ValueError, match=rf"wave_test_split1\.txt, {message}"):
        load_jhmdb(scores)


def test_split_files_that_are_too_long(scores):
    path = scores / "splits" / "wave_test_split1.txt"
    path.write_text("w1.avi 1\nw2.avi 2\n".ljust(2**20))
    assert len(load_jhmdb(scores).labels) == 5
    path.write_text("w1.avi 1\nw2.avi 2\n".ljust(2**20 + 1))
    with pytest.raises(ValueError, match=r"wave_test_split1\.txt has more than 1048576 bytes"):
        load_jhmdb(scores)


def test_hidden_files_hold_no_scores(scores):
    (scores / "wave" / "._w1.npz").write_bytes(b"attributes of w1.npz")
    assert len(load_jhmdb(scores).labels) == 5


def test_scores_in_what_is_no_file(scores):
    (scores / "wave" / "x.npz").mkdir()
    with pytest.raises(IsADirectoryError, match=r"wave/x\.npz: it is a folder, must be a file"):
        load_jhmdb(scores)
    (scores / "wave" / "x.npz").rmdir()
    os.mkfifo(scores / "wave" / "x.npz")
    with pytest.raises(ValueError, match=r"wave/x\.npz: it is a device, pipe or socket"):
        load_jhmdb(scores)


def test_splits_that_are_missing_or_empty(scores):
    (scores / "splits" / "wave_test_split3.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"wave_test_split3\.txt does not exist"):
        load_jhmdb(scores)
    for action in VIDEOS:
        (scores / "splits" / f"{action}_test_split3.txt").write_text("")
    with pytest.raises(ValueError, match="split 3 has no training videos"):
        load_jhmdb(scores)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rgb": np.ones(4)}, r"rgb has shape \(4,\)"),
        ({"rgb": np.ones((0, 4))}, r"rgb has shape \(0, 4\)"),
        ({"flow": np.full((3, 4), "a")}, "flow has .* dtype <U1"),
        ({"flow": np.full((3, 4), np.inf)}, "flow has NaN or infinite"),
        ({"flow": np.ones((3, 5))}, "flow has the scores of 5 classes, must have those of 4"),
        ({"rgb": np.array([[None]])}, "objects are never unpickled"),
    ],
)
def test_scores_that_cannot_be(scores, change, message):
    np.savez(
        scores / "wave" / "w1.npz", **{"rgb": np.ones((3, 4)), "flow": np.ones((3, 4))} | change
    )
    with pytest.raises(ValueError, match=rf"w1\.npz: .*{message}"):
        load_jhmdb(scores)


# --- matrices that were stored --------------------------------------------------------------------


@pytest.mark.parametrize("load", [load_rgbd, load_breast, load_myometrium, load_prostate])
def test_stored_matrices_by_folder_and_by_file(load, tmp_path):
    matrices = wishart(np.random.default_rng(0), 10, 8)
    labels = np.repeat(["benign", "cancer"], 5)
    np.savez(tmp_path / "matrices.npz", matrices=matrices, labels=labels)
    np.savez(tmp_path / "other.npz", X=2 * matrices, y=labels)
    dataset = load(tmp_path)
    np.testing.assert_array_equal(dataset.matrices, matrices)
    assert dataset.labels.tolist() == labels.tolist()
    assert [len(train) for train, _ in dataset.splits()] == [8] * 5
    np.testing.assert_array_equal(load(tmp_path / "other.npz").matrices, 2 * matrices)
    (tmp_path / "matrices.npy").touch()
    with pytest.raises(ValueError, match=r"holds matrices\.npy, matrices\.npz, must hold one"):
        load(tmp_path)


def test_stored_sets_note_what_is_not_published(tmp_path):
    matrices = wishart(np.random.default_rng(0), 6, 8)
    np.savez(tmp_path / "matrices.npz", matrices=matrices, labels=np.arange(6) // 2)
    expected = "Published are 15000 matrices of 51 classes; here are 6 matrices of 3 classes."
    assert load_rgbd(tmp_path).notes == (expected,)
    assert load_breast(tmp_path).notes == ("The paper has 2 classes; here are 3.",)
    assert load_breast(tmp_path).terms == "not stated by the source"


def test_cancer_images(tmp_path, reads):
    for tissue in ("benign", "cancer"):
        for image in range(5):
            save_image(tmp_path / tissue / f"{image}.png", image, (10, 11, 3))
    dataset = load_myometrium(tmp_path)
    assert dataset.labels.tolist() == ["benign"] * 5 + ["cancer"] * 5
    assert dataset.notes == ()
    assert reads.total() == 0
    assert dataset.matrices.shape == (10, 8, 8)


def test_load_spd(tmp_path):
    matrices = wishart(np.random.default_rng(0), 5, 3)
    np.savez(
        tmp_path / "mine.v2.npz",
        X_train=matrices[:3], X_test=matrices[3:], y_train=[1, 1, 2], y_test=[1, 2],
    )  # fmt: skip
    dataset = load_spd(tmp_path / "mine.v2.npz")
    assert dataset.name == "mine.v2"
    np.testing.assert_array_equal(dataset.matrices, matrices)
    assert dataset.labels.tolist() == [1, 1, 2, 1, 2]
    assert [part.tolist() for part in dataset.splits()[0]] == [[0, 1, 2], [3, 4]]
    assert dataset.citation == dataset.terms == "not stated by the source"
    chosen = load_spd(tmp_path / "mine.v2.npz", matrices="X_test", labels="y_test")
    np.testing.assert_array_equal(chosen.matrices, matrices[3:])
    assert chosen.official_splits == ()
    assert pickle.loads(pickle.dumps(chosen)).labels.tolist() == [1, 2]


def test_load_spd_finds_a_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    np.savez(tmp_path / "mine.npz", X=np.eye(2)[None], y=[1])
    assert load_spd("~/mine.npz").labels.tolist() == [1]


def test_load_spd_passes_its_options_on(tmp_path):
    path = tmp_path / "flat.npz"
    np.savez(path, X=np.stack([np.eye(2), np.ones((2, 2))]), y=[1, 2])
    with pytest.raises(ValueError, match=r"flat\.npz: X\[1\]"):
        load_spd(path)
    with pytest.warns(SPDRepairWarning):
        assert load_spd(path, regularize="shrink").matrices.shape == (2, 2, 2)
    with pytest.raises(ValueError, match="limit=10"):
        load_spd(path, limit=10)


def test_load_spd_without_labels(tmp_path):
    np.save(tmp_path / "bare.npy", np.stack([np.eye(2), 2 * np.eye(2)]))
    bare = load_spd(tmp_path / "bare.npy")
    assert bare.labels is None
    assert repr(bare) == "<Dataset bare: 2 matrices without labels>"
    assert "2 SPD matrices, 2 x 2 without labels" in bare.summary()
    assert bare.subset(np.array([1])).matrices.tolist() == [[[2, 0], [0, 2]]]
    for ask in (bare.splits, lambda: bare.classes):
        with pytest.raises(ValueError, match="bare has no labels; save them"):
            ask()


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "the file is damaged"), (b"PK\x03\x04 and more", "the file is damaged")],
)
def test_archives_that_are_none(tmp_path, content, message):
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(ValueError, match=rf"a\.npz: {message}"):
        read_arrays(tmp_path / "a.npz", ["x"], 100)


def test_archives_are_read_within_bounds(tmp_path):
    path = tmp_path / "a.npz"
    np.savez_compressed(path, x=np.zeros(10**6), y=np.arange(3))
    assert read_arrays(path, ["y"], 24)[0].tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match=r"x \(1000000,\) .* would take 8000000 bytes, must be <="):
        read_arrays(path, ["x"], 2**20)
    with pytest.raises(ValueError, match="it lacks the arrays z; write it again"):
        read_arrays(path, ["y", "z"], 100)


# --- the real data --------------------------------------------------------------------------------


def real(folder: str):
    if "DIVLEARN_DATA" not in os.environ:
        pytest.skip("DIVLEARN_DATA is not set")
    if not (Path(os.environ["DIVLEARN_DATA"]) / folder).exists():
        pytest.skip(f"DIVLEARN_DATA has no {folder}")
    return LOADERS[folder]


def log_vectors(matrices: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(matrices)
    return ((vectors * np.log(values)[:, None, :]) @ vectors.mT).reshape(len(matrices), -1)


def nearest_neighbour_hits(dataset, train: np.ndarray, test: np.ndarray) -> int:
    vectors = log_vectors(dataset.matrices)
    squares = (vectors**2).sum(axis=1)
    distances = squares[train] - 2 * vectors[test] @ vectors[train].T
    return int((dataset.labels[train[distances.argmin(axis=1)]] == dataset.labels[test]).sum())


def test_real_virus():
    dataset = real("virus")()
    assert len(dataset.images) == len(dataset.labels) == 1500
    assert np.unique(dataset.labels, return_counts=True)[1].tolist() == [100] * 15
    assert len(np.unique(dataset.groups)) == 75
    copies = dataset.duplicates()
    assert [len(group) for group in copies] == [2, 2, 2, 2]
    assert [dataset.labels[list(group)].tolist() for group in copies] == [
        [2, 2], [2, 2], [2, 2], [6, 9],
    ]  # fmt: skip
    assert "4 images are there more than once, 1 of them under different" in dataset.notes[-1]
    assert len(dataset.notes) == 2
    assert dataset.matrices.shape == (1500, 29, 29)
    hits = [nearest_neighbour_hits(dataset, *split) for split in dataset.splits()]
    assert np.mean(hits) / 500 >= 0.6467  # measured: 0.700


def test_real_brodatz():
    dataset = real("brodatz")()
    assert len(dataset.labels) == 40_000
    few = load_brodatz(n_textures=20)
    assert few.matrices.shape == (8000, 5, 5)
    assert few.labels.tolist() == [number for number in range(1, 21) for _ in range(400)]
    train, test = few.splits(n=1)[0]
    assert nearest_neighbour_hits(few, train, test) / len(test) > 0.86  # measured: 0.871


def test_real_kth_tips2_authors():
    dataset = real("kth_tips2_authors")()
    assert dataset.matrices.shape == (360, 23, 23)
    ((train, test),) = dataset.splits()
    assert (len(train), len(test)) == (300, 60)
    assert nearest_neighbour_hits(dataset, train, test) == 44
    assert dataset.duplicates() == []


def test_real_jhmdb_joints():
    dataset = real("jhmdb_joints")()
    assert len(dataset.series) == len(dataset.labels) == 609
    assert len(dataset.classes) == 14
    lengths = [series.shape[1] for series in dataset.series]
    assert (min(lengths), max(lengths), sum(lengths)) == (15, 40, 21126)
    sizes = [(len(train), len(test)) for train, test in dataset.splits()]
    assert sizes == [(433, 176), (433, 176), (434, 175)]
    for train, test in dataset.splits():
        assert sorted([*train, *test]) == list(range(609))
    assert dataset.duplicates() == []
    assert dataset.matrices.shape == (609, 31, 31)
    hits = [nearest_neighbour_hits(dataset, *split) for split in dataset.splits()]
    assert sum(hits) >= 295  # of 527; measured: 102 + 107 + 93


@pytest.mark.parametrize("folder", ["kth_tips2", "jhmdb", "hmdb"])
def test_real_sets_with_official_splits(folder):
    dataset = real(folder)()
    assert dataset.official_splits
    assert dataset.notes == ()
