"""Data sets that are stored as matrices: the authors' KTH-TIPS2, 3D objects, tissue."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from divlearn.datasets import Dataset, ImageFiles, load_spd
from divlearn.descriptors import CovarianceKernel
from paper.datasets.folders import NOT_STATED, PathLike, find_folder, list_files, need, subfolders


def load_kth_tips2_authors(path: PathLike | None = None) -> Dataset:
    """KTH-TIPS2 as the authors of the paper described it: 360 covariances, 23 x 23, and one split.

    The file ``demo_dataset.mat`` came with the code that the authors published in 2017. Labels are
    the numbers of the materials; 300 matrices are to train on and 60 to test on.
    """
    folder = find_folder(path, "kth_tips2_authors")
    (file,) = need([folder / "demo_dataset.mat"], folder, "demo_dataset.mat")
    dataset = load_spd(file)
    if not dataset.official_splits:
        raise ValueError(f"{file} must hold X_train and X_test; take the file as published")
    return replace(
        dataset,
        name="KTH-TIPS2, the authors' matrices",
        citation=(
            "the matrices of A. Cherian, P. Stanitsas, M. Harandi, V. Morellas and N. "
            'Papanikolopoulos, "Learning discriminative αβ-divergences for positive definite '
            'matrices", ICCV 2017'
        ),
        notes=(
            "The test matrices are of other pieces of material than the training matrices: "
            "cross-validation within the training part promises too much.",
            "60 test matrices tell accuracies apart only from about 5 points on.",
        ),
    )


def load_rgbd(path: PathLike | None = None) -> Dataset:
    """RGB-D objects: 15000 covariances, 18 x 18, of point clouds of 51 kinds of objects.

    A file ``matrices.*`` that `load_spd` reads. The paper calls this set SHREC and did not publish
    its matrices; these are one's own, by the recipe of Fehr's thesis (University of Minnesota,
    2013). The splits are those of the paper, 80 % for training, five times.
    """
    folder = find_folder(path, "rgbd")
    citation = (
        'K. Lai, L. Bo, X. Ren and D. Fox, "A large-scale hierarchical multi-view RGB-D object '
        'dataset", ICRA 2011'
    )
    found = _find_matrices(folder) or folder / "matrices.npz"
    (file,) = need([found], folder, "matrices.* with labels")
    return replace(load_spd(file), name="RGB-D objects", citation=citation)


def load_cancer(path: PathLike) -> Dataset:
    """Tissue with cancer and without, as 8 x 8 covariance kernels: breast, myometrium, prostate.

    Colour images ``<class>/*.png``, or a file ``matrices.*`` that `load_spd` reads, which is then
    taken instead. The paper's images were not published. The splits are those of the paper, 80 %
    for training, five times.
    """
    folder = find_folder(path, "a cancer set")
    citation = (
        "P. Stanitsas, A. Cherian, X. Li, A. Truskinovsky, V. Morellas and N. Papanikolopoulos, "
        '"Evaluation of feature descriptors for cancerous tissue recognition", ICPR 2016'
    )
    if file := _find_matrices(folder):
        return replace(load_spd(file), name=folder.name, citation=citation)
    paths = [image for tissue in subfolders(folder) for image in list_files(tissue, ".png")]
    need(paths, folder, "<class>/*.png or matrices.* with labels")
    return Dataset(
        name=folder.name,
        labels=np.array([image.parent.name for image in paths]),
        citation=citation,
        terms=NOT_STATED,
        images=ImageFiles(paths),
        descriptor=CovarianceKernel(),
    )


def _find_matrices(folder: Path) -> Path | None:
    files = sorted(folder.glob("matrices.*"))
    if len(files) > 1:
        names = ", ".join(file.name for file in files)
        raise ValueError(f"{folder} holds {names}, must hold one of them")
    return files[0] if files else None
