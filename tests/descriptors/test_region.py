"""Region covariances: agreement with numpy.cov, invariances, regions, errors, scikit-learn."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from divlearn.descriptors import (
    PRESETS,
    CovarianceKernel,
    GaborBank,
    Preset,
    RegionCovariance,
)
from divlearn.spd import SPDRepairWarning, check_spd, logm

BRODATZ = ["x", "y", "I", "|Ix|", "|Iy|"]


def noise(shape, seed=0, dtype=np.uint8):
    return np.random.default_rng(seed).integers(0, 256, shape).astype(dtype)


def pixels_one_by_one(image, box):
    """The features of the preset "brodatz", in the plainest way."""
    image = image.astype(float)
    along_y, along_x = np.gradient(image)
    top, left, bottom, right = box
    return np.array(
        [
            (
                (x - left) / (right - left - 1),
                (y - top) / (bottom - top - 1),
                image[y, x],
                abs(along_x[y, x]),
                abs(along_y[y, x]),
            )
            for y in range(top, bottom)
            for x in range(left, right)
        ]
    ).T


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint16, np.int64, np.float64, bool])
def test_whole_images_agree_with_numpy(dtype):
    images = noise((4, 20, 31))
    images = images > 127 if dtype is bool else images.astype(dtype)
    computed = RegionCovariance("brodatz").fit_transform(images)
    assert computed.dtype == np.float64
    for image, matrix in zip(images, computed, strict=True):
        expected = np.cov(pixels_one_by_one(image, (0, 0, 20, 31)))
        scale = np.sqrt(np.diag(expected))
        np.testing.assert_allclose(
            matrix / np.outer(scale, scale), expected / np.outer(scale, scale), atol=1e-14
        )


@pytest.mark.parametrize("stride", [None, 7, (3, 11)])
def test_patches_agree_with_numpy(stride):
    images = noise((3, 40, 52))
    regions = RegionCovariance("brodatz", patch=(16, 20), stride=stride).fit(images)
    described = regions.transform_regions(images)
    assert regions.transform(images).shape == (3, len(described.matrices) // 3, 5, 5)
    np.testing.assert_array_equal(regions.transform(images).reshape(-1, 5, 5), described.matrices)
    for index in range(0, len(described.matrices), 5):
        image, box = images[described.image[index]], described.boxes[index]
        np.testing.assert_allclose(
            described.matrices[index], np.cov(pixels_one_by_one(image, box)), rtol=1e-9, atol=1e-9
        )


def test_boxes_agree_with_numpy_and_may_overlap():
    image = noise((60, 70))
    rng = np.random.default_rng(1)
    top, left = rng.integers(0, 30, (2, 400))
    boxes = np.stack(
        [top, left, top + rng.integers(8, 30, 400), left + rng.integers(8, 40, 400)], axis=1
    )
    computed = RegionCovariance("brodatz", boxes=boxes).fit_transform([image])
    assert computed.shape == (1, 400, 5, 5)
    for matrix, box in zip(computed[0, ::20], boxes[::20], strict=True):
        np.testing.assert_allclose(
            matrix, np.cov(pixels_one_by_one(image, box)), rtol=1e-9, atol=1e-9
        )


def test_images_of_many_sizes_and_their_own_boxes():
    images = [noise((20, 30), 1), noise((20, 30), 2), noise((45, 25), 3), noise((20, 30), 4)]
    descriptor = RegionCovariance("texture", patch=20).fit(images)
    regions = descriptor.transform_regions(images)
    assert regions.image.tolist() == [0, 1, 2, 2, 3]
    with pytest.raises(
        ValueError, match=r"X\[0\] has 1 region but X\[2\] has 2; use transform_regions"
    ):
        descriptor.transform(images)
    alone = RegionCovariance("texture").fit(images).transform([images[2][:20, :20]])
    assert alone.shape == (1, 5, 5)
    own = [[[0, 0, 20, 20]], [[0, 0, 10, 10], [5, 5, 20, 30]], [[1, 1, 30, 20]], [[0, 0, 20, 30]]]
    regions = descriptor.transform_regions(images, own)
    assert regions.image.tolist() == [0, 1, 1, 2, 3]
    assert regions.boxes.tolist() == [box for boxes in own for box in boxes]
    whole = RegionCovariance("texture").fit_transform(images)
    np.testing.assert_allclose(regions.matrices[-1], whole[-1], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("preset", "d", "channels"),
    [
        ("brodatz", 5, ()),
        ("texture", 5, ()),
        ("virus", 29, ()),
        ("kth-tips2", 23, (3,)),
        ("cancer", 8, (3,)),
    ],
)
def test_presets(preset, d, channels):
    images = noise((3, 41, 41, *channels))
    descriptor = RegionCovariance(preset).fit(images)
    computed = descriptor.transform(images)
    assert computed.shape == (3, d, d)
    assert len(descriptor.feature_names_) == d
    assert descriptor.n_features_in_ == (channels or (1,))[0]
    np.testing.assert_array_equal(check_spd(computed), computed)
    variances = np.diagonal(computed, axis1=1, axis2=2)
    if preset == "kth-tips2":
        np.testing.assert_array_equal(variances[:, 3:], 1)
        np.testing.assert_allclose(
            variances[:, :3], images.reshape(3, -1, 3).astype(float).var(axis=1, ddof=1)
        )
        plain = RegionCovariance(PRESETS[preset].features).fit_transform(images)
        scale = np.sqrt(np.diagonal(plain, axis1=1, axis2=2))
        correlation = np.sqrt(variances)
        np.testing.assert_allclose(
            computed / correlation[:, :, None] / correlation[:, None],
            plain / scale[:, :, None] / scale[:, None],
            atol=1e-13,
        )
    else:
        assert (np.abs(variances - 1) > 1e-3).all()


def test_features_are_what_they_are_called():
    image = noise((12, 15, 3)).astype(float)
    grey = image @ [0.2125, 0.7154, 0.0721]
    along_y, along_x = np.gradient(grey)
    second = np.abs(grey[:, 2:] - 2 * grey[:, 1:-1] + grey[:, :-2])
    planes = {
        "I": grey,
        "R": image[..., 0],
        "G": image[..., 1],
        "B": image[..., 2],
        "Ix": along_x,
        "Iy": along_y,
        "|Ix|": np.abs(along_x),
        "|Iy|": np.abs(along_y),
        "|Ixx|": np.pad(second, ((0, 0), (1, 1)), mode="edge"),
        "magnitude": np.sqrt(along_x**2 + along_y**2),
        "orientation": np.arctan(np.abs(along_y) / np.abs(along_x)),
    }
    for name, plane in planes.items():
        computed = RegionCovariance([name]).fit_transform([image])
        np.testing.assert_allclose(computed, [[[plane.var(ddof=1)]]], rtol=1e-12)
    turned = RegionCovariance(["|Iyy|"]).fit_transform([image.swapaxes(0, 1)])
    np.testing.assert_allclose(
        turned, RegionCovariance(["|Ixx|"]).fit_transform([image]), rtol=1e-12
    )
    channels = RegionCovariance(["channels"]).fit([image])
    assert channels.feature_names_ == ["channel 0", "channel 1", "channel 2"]
    np.testing.assert_allclose(
        channels.transform([image])[0], np.cov(image.reshape(-1, 3).T), rtol=1e-12
    )


def test_callables_and_banks():
    image = noise((20, 20, 3))

    def warmth(pixels):
        return pixels[..., 0] - pixels[..., 2]

    descriptor = RegionCovariance(
        ["I", warmth, lambda p: np.stack([p[..., 0], p[..., 1]]), GaborBank(1, 2)]
    )
    assert descriptor.fit([image]).feature_names_ == [
        "I",
        "warmth",
        "<lambda> 0",
        "<lambda> 1",
        "gabor 0 0",
        "gabor 0 90",
    ]
    descriptor = RegionCovariance(["R", "B", warmth]).fit([image])
    with pytest.warns(SPDRepairWarning, match="shrunk"):  # the third is made of the others
        computed = descriptor.transform([image])
    assert computed[0, 2, 2] == pytest.approx(warmth(image.astype(float)).var(ddof=1))


@pytest.mark.parametrize("shape", [(24, 24), (20, 33)])
def test_rotation_by_ninety_degrees_permutes_features(shape):
    image = noise((1, *shape)).astype(float)
    features = ["x", "y", "I", "|Ix|", "|Iy|", "|Ixx|", "|Iyy|", "magnitude", "gabor 2x4"]
    names = RegionCovariance(features).fit(image).feature_names_
    straight = RegionCovariance(features).fit_transform(image)[0]
    rotated = RegionCovariance(features).fit_transform(np.rot90(image, axes=(1, 2)))[0]
    partner = {
        "x": "y",
        "y": "x",
        "|Ix|": "|Iy|",
        "|Iy|": "|Ix|",
        "|Ixx|": "|Iyy|",
        "|Iyy|": "|Ixx|",
    }
    for scale in (0, 1):
        for angle in (0, 45, 90, 135):
            partner[f"gabor {scale} {angle}"] = f"gabor {scale} {(angle + 90) % 180}"
    order = [names.index(partner.get(name, name)) for name in names]
    sign = np.array([-1 if name == "y" else 1 for name in names])  # x turns into y, y into -x
    expected = np.outer(sign, sign) * straight[np.ix_(order, order)]
    np.testing.assert_allclose(rotated, expected, rtol=1e-9, atol=1e-9 * np.abs(straight).max())


def test_single_precision_in_and_out():
    images = np.random.default_rng(0).random((5, 32, 32), dtype=np.float32)
    double = RegionCovariance("texture").fit_transform(images.astype(np.float64))
    for form in (images, list(images)):
        single = RegionCovariance("texture").fit_transform(form)
        assert single.dtype == np.float32
        np.testing.assert_array_equal(single, double.astype(np.float32))


def test_more_features_than_pixels_is_repaired_and_said():
    with pytest.warns(
        SPDRepairWarning, match="region covariances: 2 of 2 matrices had a correlation"
    ):
        computed = RegionCovariance("virus").fit_transform(noise((2, 5, 5)))
    check_spd(computed)


def test_constant_features_are_repaired_and_said():
    image = np.broadcast_to(np.arange(20.0), (1, 30, 20))
    with pytest.warns(SPDRepairWarning, match="1 of 1 matrices had features without variance"):
        computed = RegionCovariance("brodatz").fit_transform(image)
    check_spd(computed)
    images = noise((2, 20, 20))
    images[1, :, 9:] = 0.1
    message = r"^X\[1\] has no feature that varies in the box \(0, 10, 10, 20\) \(2 of 8 regions\)"
    with pytest.raises(ValueError, match=message):
        RegionCovariance("texture", patch=10).fit_transform(images)


def test_threads_stacks_and_lists_change_nothing(capsys):
    images = noise((300, 24, 24))
    expected = RegionCovariance("texture").fit_transform(images)
    np.testing.assert_array_equal(
        RegionCovariance("texture", n_jobs=2).fit_transform(images), expected
    )
    np.testing.assert_array_equal(RegionCovariance("texture").fit_transform(list(images)), expected)
    np.testing.assert_array_equal(
        RegionCovariance("texture").fit_transform(images[7:8])[0], expected[7]
    )
    RegionCovariance("texture", verbose=1).fit_transform(images)
    assert "300 of 300 images" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"features": "virsu"}, "features='virsu' must be one of brodatz, texture"),
        ({"features": ["I", "Ixy"]}, "feature 'Ixy' must be one of x, y, I"),
        ({"features": []}, r"features=\[\] must be the name of a preset or a list"),
        ({"features": [3]}, "feature 3 must be one of"),
        ({"features": ["gabor 0x4"]}, "feature 'gabor 0x4' must be one of"),
        ({"features": ["R"]}, 'feature "R" needs images of 3 channels, but these have 1'),
        ({"features": [lambda image: image[:2]]}, r"<lambda> returned shape \(2, 20, 1\)"),
        ({"features": [lambda image: image[..., 0] * np.nan]}, "returned NaN or infinity"),
        ({"patch": 1}, "patch=1 must be >= 2"),
        ({"patch": 21}, r"patch=21 must be <= the size of X\[0\], 20 x 20"),
        ({"patch": 4.0}, "patch=4.0 must be an integer or a pair"),
        ({"stride": 2}, "stride=2 needs a patch"),
        ({"patch": 4, "stride": 0}, "stride=0 must be >= 1"),
        ({"patch": 4, "boxes": [[0, 0, 4, 4]]}, "patch=4 and boxes are both"),
        ({"boxes": [[0, 0, 4, 99]]}, r"X\[0\]: box 0 is \(0, 0, 4, 99\)"),
        ({"boxes": [[0, 0, 1, 1]]}, r"box 0 is .* two pixels"),
        ({"floor": 0}, "floor=0 must be"),
    ],
)
def test_bad_parameters(options, message):
    error = TypeError if "integer" in message else ValueError
    for descriptor in (RegionCovariance, CovarianceKernel):
        with pytest.raises(error, match=message):
            descriptor(**{"features": "texture", **options}).fit(noise((2, 20, 20)))


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (np.zeros((480, 640, 3)), r"looks like one colour image: pass \[X\]; for 480 narrow"),
        (np.zeros((480, 640)), r"shape \(480, 640\), but must be \(n_images, height, width\)"),
        ([], "holds no image"),
        ("images", "X is a str, but must be an array or list of images"),
        ({1: 2}, "X is a dict, but must be an array or list"),
        ([np.zeros((4, 4)), np.zeros(4)], r"X\[1\] has shape \(4,\), but must be"),
        (
            [np.zeros((4, 4)), np.zeros((2, 9))],
            r"X\[1\] has 2 x 9 pixels, but must have at least 3",
        ),
        ([np.zeros((4, 4), complex)], r"X\[0\] has dtype complex128"),
        ([np.array([["a"] * 4] * 4)], r"X\[0\] has dtype <U1"),
        ([noise((9, 9)), np.full((9, 9), np.nan)], r"X\[1\] holds NaN or infinity"),
        ([noise((9, 9)), noise((9, 9, 3))], r"X\[1\] has 3 channels, but .* is expecting 1"),
        ([noise((9, 9, 3)), noise((9, 9))], r"X\[1\] has 1 channel, but .*; pass samples with the"),
        ([noise((9, 9, 2))], "images have 2 channels, but grey values are defined for 1 and 3"),
    ],
)
def test_bad_images(images, message):
    error = TypeError if "array or list" in message or "dtype" in message else ValueError
    with pytest.raises(error, match=message):
        RegionCovariance("texture").fit_transform(images)


def test_boxes_of_each_image_are_checked():
    images = noise((2, 20, 20))
    descriptor = RegionCovariance("texture").fit(images)
    with pytest.raises(ValueError, match="boxes are given for 1 image, but X has 2"):
        descriptor.transform_regions(images, [[[0, 0, 9, 9]]])
    with pytest.raises(ValueError, match=r"X\[1\]: box 0 is \(0, 0, 9, 21\)"):
        descriptor.transform_regions(images, [[[0, 0, 9, 9]], [[0, 0, 9, 21]]])


def test_threads_under_another_backend():
    from joblib import parallel_backend

    images = noise((3, 12, 12))
    expected = RegionCovariance().fit_transform(images)
    with parallel_backend("multiprocessing", n_jobs=2):
        np.testing.assert_array_equal(RegionCovariance().fit_transform(images), expected)


def test_kept_variances_must_be_those_of_features():
    for kept in (("X",), "I"):
        with pytest.raises(ValueError, match="keep_variance"):
            RegionCovariance(Preset(("I", "|Ix|"), keep_variance=kept)).fit(noise((2, 9, 9)))


def test_object_arrays_of_images_are_lists():
    images = np.empty(2, dtype=object)
    images[:] = [noise((9, 9)), noise((12, 14))]
    np.testing.assert_array_equal(
        RegionCovariance("texture").fit_transform(images),
        RegionCovariance("texture").fit_transform(list(images)),
    )


# scikit-learn


def test_in_a_pipeline_and_a_search():
    rng = np.random.default_rng(0)
    smooth = rng.random((20, 24, 24)).cumsum(axis=2) * 10
    rough = rng.random((20, 24, 24)) * 100
    images, labels = np.concatenate([smooth, rough]), np.repeat([0, 1], 20)

    pipeline = make_pipeline(
        RegionCovariance(),
        FunctionTransformer(lambda X: logm(X).reshape(len(X), -1)),
        KNeighborsClassifier(1),
    )
    search = GridSearchCV(pipeline, {"regioncovariance__features": ["texture", "brodatz"]}, cv=2)
    assert search.fit(images, labels).score(images, labels) == 1
    descriptor = RegionCovariance("virus", patch=16).fit(images)
    copy = pickle.loads(pickle.dumps(descriptor))
    np.testing.assert_array_equal(copy.transform(images[:2]), descriptor.transform(images[:2]))
    assert clone(descriptor).get_params() == descriptor.get_params()


# covariance kernels


def test_covariance_kernels_are_kernels_of_centred_features():
    image = noise((20, 24, 3)).astype(float)
    features = ["R", "G", "B", "magnitude"]
    kernel = CovarianceKernel(features, gamma=1e-4).fit_transform([image])[0]
    grey = image @ [0.2125, 0.7154, 0.0721]
    planes = np.array([*np.moveaxis(image, -1, 0), np.hypot(*np.gradient(grey))]).reshape(4, -1)
    planes -= planes.mean(axis=1, keepdims=True)
    squares = ((planes[:, None] - planes) ** 2).sum(axis=2) / (planes.shape[1] - 1)
    np.testing.assert_allclose(kernel, np.exp(-1e-4 * squares), rtol=1e-10)


def test_covariance_kernels_learn_gamma():
    images = noise((6, 20, 24, 3))
    descriptor = CovarianceKernel().fit(images)
    kernels = descriptor.transform(images)
    assert kernels.shape == (6, 8, 8)
    off = kernels[:, *np.triu_indices(8, 1)]
    assert np.median(off) == pytest.approx(np.exp(-1), rel=1e-6)
    bright = CovarianceKernel().fit(2 * images.astype(float) + 7)
    assert bright.gamma_ == pytest.approx(descriptor.gamma_ / 4)
    assert descriptor.set_params(patch=10).fit_transform(images).shape == (6, 4, 8, 8)


def test_a_preset_of_ones_own():
    preset = Preset(("I", "|Ix|"), keep_variance=())
    computed = RegionCovariance(preset).fit_transform(noise((2, 9, 9)))
    np.testing.assert_array_equal(np.diagonal(computed, axis1=1, axis2=2), 1)
