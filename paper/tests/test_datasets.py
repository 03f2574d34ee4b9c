"""Loaders on small folders of their layouts, and on the real data where DIVLEARN_DATA names it."""

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from divlearn.datasets import make_wishart_clusters
from divlearn.descriptors import RegionCovariance
from paper import datasets

LOADERS = {
    "virus": datasets.load_virus,
    "brodatz": datasets.load_brodatz,
    "kth_tips2": datasets.load_kth_tips2,
    "kth_tips2_authors": datasets.load_kth_tips2_authors,
    "jhmdb_joints": datasets.load_jhmdb_joints,
    "jhmdb": datasets.load_jhmdb,
    "hmdb": datasets.load_hmdb,
    "rgbd": datasets.load_rgbd,
}


def save_image(path: Path, seed: int, shape: tuple[int, ...]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    Image.fromarray(pixels).save(path)


def stored(n: int, d: int = 8) -> np.ndarray:
    return make_wishart_clusters(1, n, d, random_state=0)[0]


# --- folders that are not there, or hold something else -------------------------------------------


@pytest.mark.parametrize("folder", LOADERS)
def test_what_is_missing_is_named(folder, tmp_path, monkeypatch):
    monkeypatch.delenv("DIVLEARN_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match=f"{folder}; pass path= or set DIVLEARN_DATA"):
        LOADERS[folder]()
    with pytest.raises(FileNotFoundError, match=f"nowhere must be the folder of {folder}"):
        LOADERS[folder](tmp_path / "nowhere")
    monkeypatch.setenv("DIVLEARN_DATA", str(tmp_path))
    (tmp_path / folder).mkdir()
    with pytest.raises(FileNotFoundError, match=f"{tmp_path / folder} .*; it must hold "):
        LOADERS[folder]()


# --- images ---------------------------------------------------------------------------------------


def test_virus(tmp_path):
    for number in (1, 2, 10):
        for part in (1, 2):
            for image in (1, 2, 10):
                seed = 100 * number + 10 * part + image
                save_image(tmp_path / f"{number}/{part}/{image}.png", seed, (41, 41))
    save_image(tmp_path / ".trash/1/1.png", 0, (41, 41))
    dataset = datasets.load_virus(tmp_path)
    assert dataset.labels.tolist() == [1] * 6 + [2] * 6 + [10] * 6
    assert dataset.groups[:7].tolist() == ["1/1"] * 3 + ["1/2"] * 3 + ["2/1"]
    assert [path.name for path in dataset.images.paths[:3]] == ["1.png", "2.png", "10.png"]
    assert [len(train) for train, _ in dataset.splits()] == [12, 12, 12]
    expected = RegionCovariance("virus").fit_transform([dataset.images[i] for i in range(18)])
    np.testing.assert_allclose(dataset.matrices, expected, rtol=1e-12)


def test_brodatz_patches_are_in_order(tmp_path):
    for number in range(1, 12):
        save_image(tmp_path / f"D{number}.gif", number, (64, 80))
    dataset = datasets.load_brodatz(tmp_path, n_textures=11, features=["I", "|Iy|"])
    assert dataset.labels.tolist() == [number for number in range(1, 12) for _ in range(4)]
    image = dataset.images[2].astype(float)
    slopes, box = np.abs(np.gradient(image, axis=0)), np.s_[32:64, 32:64]
    expected = np.cov(image[box].ravel(), slopes[box].ravel())
    np.testing.assert_allclose(dataset.matrices[2 * 4 + 3], expected, rtol=1e-10)
    assert len(dataset.splits(train=0.5)) == 5
    with pytest.raises(FileNotFoundError, match=r"lacks D12\.gif, D13\.gif; it must hold D1\.gif"):
        datasets.load_brodatz(tmp_path, n_textures=13)


def test_kth_tips2_tests_on_other_samples(tmp_path):
    for m, material in enumerate(("cork", "linen", "wool")):
        for s, sample in enumerate("abcd"):
            for image in range(2):
                path = tmp_path / material / f"sample_{sample}" / f"{image}.png"
                save_image(path, 100 * m + 10 * s + image, (20, 20, 3))
        (tmp_path / material / "notes").mkdir()
    dataset = datasets.load_kth_tips2(tmp_path)
    assert dataset.labels.tolist() == ["cork"] * 8 + ["linen"] * 8 + ["wool"] * 8
    assert len(dataset.splits()) == 4
    for train, test in dataset.splits():
        assert sorted([*train, *test]) == list(range(24))
        assert not set(dataset.groups[train]) & set(dataset.groups[test])
    assert dataset.matrices.shape == (24, 23, 23)


def test_cancer_images(tmp_path):
    for tissue in ("benign", "cancer"):
        for image in range(5):
            save_image(tmp_path / tissue / f"{image}.png", image, (10, 11, 3))
    dataset = datasets.load_cancer(tmp_path)
    assert dataset.labels.tolist() == ["benign"] * 5 + ["cancer"] * 5
    assert dataset.matrices.shape == (10, 8, 8)


# --- stored matrices ------------------------------------------------------------------------------


def test_kth_tips2_authors(tmp_path):
    matrices = stored(9, 4)
    parts = {
        "X_train": np.moveaxis(matrices[:6], 0, -1),
        "train_labels": [[1.0]] * 3 + [[2.0]] * 3,
        "X_test": np.moveaxis(matrices[6:], 0, -1),
        "test_labels": [[1.0], [2.0], [2.0]],
    }
    savemat(tmp_path / "demo_dataset.mat", parts)
    dataset = datasets.load_kth_tips2_authors(tmp_path)
    np.testing.assert_array_equal(dataset.matrices, matrices)
    assert dataset.labels.tolist() == [1, 1, 1, 2, 2, 2, 1, 2, 2]
    assert [part.tolist() for part in dataset.splits()[0]] == [[0, 1, 2, 3, 4, 5], [6, 7, 8]]
    savemat(tmp_path / "demo_dataset.mat", {"X": parts["X_train"], "labels": np.arange(6)})
    with pytest.raises(ValueError, match="must hold X_train and X_test"):
        datasets.load_kth_tips2_authors(tmp_path)


@pytest.mark.parametrize("load", [datasets.load_rgbd, datasets.load_cancer])
def test_stored_matrices(load, tmp_path):
    matrices, labels = stored(10), np.repeat(["benign", "cancer"], 5)
    np.savez(tmp_path / "matrices.npz", matrices=matrices, labels=labels)
    dataset = load(tmp_path)
    np.testing.assert_array_equal(dataset.matrices, matrices)
    assert dataset.labels.tolist() == labels.tolist()
    assert [len(train) for train, _ in dataset.splits()] == [8] * 5
    (tmp_path / "matrices.npy").touch()
    with pytest.raises(ValueError, match=r"holds matrices\.npy, matrices\.npz, must hold one"):
        load(tmp_path)


# --- JHMDB joints ---------------------------------------------------------------------------------

JOINT_SPLITS = (([0, 1, 2, 3], [4, 5]), ([4, 2, 1, 5], [0, 3]), ([5, 4, 0, 3], [2, 1]))


def video(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((rng.integers(20, 30), 3, 2)).astype(np.float32)


def save_joints(path: Path, videos: list[int]) -> None:
    tracks = [video(seed) for seed in videos]
    labels = np.array(["wave" if seed % 2 else "clap" for seed in videos])
    lengths = np.array([len(track) for track in tracks])
    np.savez(path, joints=np.concatenate(tracks), lengths=lengths, labels=labels)


@pytest.fixture
def joints(tmp_path) -> Path:
    for k, (train, test) in enumerate(JOINT_SPLITS, 1):
        save_joints(tmp_path / f"train_{k}.npz", train)
        save_joints(tmp_path / f"test_{k}.npz", test)
    return tmp_path


def test_joints_are_one_data_set_with_three_splits(joints):
    dataset = datasets.load_jhmdb_joints(joints)
    assert dataset.labels.tolist() == ["clap", "wave"] * 3
    for seed, series in enumerate(dataset.series):
        track = video(seed)
        assert series.shape == (6, len(track))
        np.testing.assert_array_equal(series[2 * 1 + 1], track[:, 1, 1])  # y of the second joint
    expected = [(sorted(train), sorted(test)) for train, test in JOINT_SPLITS]
    assert [(train.tolist(), test.tolist()) for train, test in dataset.splits()] == expected
    assert dataset.matrices.shape == (6, 7, 7)


def test_equal_videos_of_one_split_are_two(joints):
    save_joints(joints / "train_2.npz", [9, 9, 1])
    save_joints(joints / "test_2.npz", [9, 0])
    dataset = datasets.load_jhmdb_joints(joints)
    assert len(dataset.labels) == 9  # six, and three that look the same
    train, test = dataset.splits()[1]
    assert (train.tolist(), test.tolist()) == ([1, 6, 7], [0, 8])


def test_joints_that_do_not_add_up(joints):
    np.savez(joints / "test_2.npz", joints=np.ones((5, 3, 2)), lengths=[3, 3], labels=["a", "b"])
    with pytest.raises(ValueError, match=r"test_2\.npz: lengths add up to 6 frames of 2 videos"):
        datasets.load_jhmdb_joints(joints)


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
            rgb, flow = rng.random((n_frames, 4)), rng.random((n_frames - 1, 4))
            np.savez(tmp_path / action / f"{name}.npz", rgb=rgb.astype(np.float32), flow=flow)
        for k in (1, 2, 3):
            lines = [f"{name}.avi {(i + k) % 3} " for i, name in enumerate(videos)]
            (tmp_path / "splits" / f"{action}_test_split{k}.txt").write_text("\n".join(lines))
    return tmp_path


@pytest.mark.parametrize("load", [datasets.load_jhmdb, datasets.load_hmdb])
def test_scores(scores, load):
    dataset = load(scores)
    assert dataset.labels.tolist() == ["run"] * 3 + ["wave"] * 2
    rgb = np.load(scores / "run" / "r10.npz")["rgb"]
    np.testing.assert_array_equal(dataset.series[1][0], rgb.T.astype(np.float64))
    assert dataset.matrices.shape == (5, 8, 8)
    assert not dataset.matrices[:, :4, 4:].any()
    splits = [(train.tolist(), test.tolist()) for train, test in dataset.splits()]
    assert splits == [([2, 3], [0, 4]), ([1], [2, 3]), ([0, 4], [1])]  # r2, r10, r#1, w1, w2


@pytest.mark.parametrize("line", ["w1.avi 3", "w1.avi", "w9.avi 1"])
def test_split_files_that_cannot_be(scores, line):
    (scores / "splits" / "wave_test_split1.txt").write_text(f"w2.avi 1\n{line}\n")
    with pytest.raises(ValueError, match=rf"wave_test_split1\.txt: the line '{line}' must be"):
        datasets.load_jhmdb(scores)


# --- the real data --------------------------------------------------------------------------------


def real(folder: str):
    if not (Path(os.environ.get("DIVLEARN_DATA", "/nowhere")) / folder).exists():
        pytest.skip(f"DIVLEARN_DATA names no folder that has {folder}")
    return LOADERS[folder]()


def nearest_neighbour_hits(dataset, splits) -> list[int]:
    """How many of the test matrices of each split have a neighbour of their class."""
    values, bases = np.linalg.eigh(dataset.matrices)
    logarithms = (bases * np.log(values)[:, None, :]) @ bases.mT
    vectors = logarithms.reshape(len(logarithms), -1)
    hits = []
    for train, test in splits:
        distances = (vectors[train] ** 2).sum(axis=1) - 2 * vectors[test] @ vectors[train].T
        nearest = train[distances.argmin(axis=1)]
        hits.append(int((dataset.labels[nearest] == dataset.labels[test]).sum()))
    return hits


def test_real_virus():
    dataset = real("virus")
    assert np.unique(dataset.labels, return_counts=True)[1].tolist() == [100] * 15
    assert len(np.unique(dataset.groups)) == 75
    copies = [dataset.labels[list(group)].tolist() for group in dataset.duplicates()]
    assert copies == [[2, 2], [2, 2], [2, 2], [6, 9]]
    assert dataset.matrices.shape == (1500, 29, 29)
    hits = nearest_neighbour_hits(dataset, dataset.splits())
    assert np.mean(hits) / 500 >= 0.6467  # measured: 0.700


def test_real_brodatz():
    assert len(real("brodatz").labels) == 40_000
    few = datasets.load_brodatz(n_textures=20)
    assert few.matrices.shape == (8000, 5, 5)
    train, test = few.splits(n=1)[0]
    (hits,) = nearest_neighbour_hits(few, [(train, test)])
    assert hits / len(test) > 0.86  # measured: 0.871


def test_real_kth_tips2_authors():
    dataset = real("kth_tips2_authors")
    assert dataset.matrices.shape == (360, 23, 23)
    ((train, test),) = dataset.splits()
    assert (len(train), len(test)) == (300, 60)
    assert nearest_neighbour_hits(dataset, [(train, test)]) == [44]


def test_real_jhmdb_joints():
    dataset = real("jhmdb_joints")
    assert (len(dataset.series), len(dataset.classes)) == (609, 14)
    sizes = [(len(train), len(test)) for train, test in dataset.splits()]
    assert sizes == [(433, 176), (433, 176), (434, 175)]
    hits = nearest_neighbour_hits(dataset, dataset.splits())
    assert sum(hits) >= 295  # of 527; measured: 102 + 107 + 93
