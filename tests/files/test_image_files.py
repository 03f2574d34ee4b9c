"""Images read lazily from files: every kind of pixel, natural order, and hostile files."""

from __future__ import annotations

import io
import struct
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest
from sklearn.model_selection import cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from divlearn.descriptors.region import RegionCovariance
from divlearn.files.images import LARGEST_IMAGE, ImageFiles, list_images, natural_key

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")

GREY = np.random.default_rng(0).integers(0, 256, (5, 7), dtype=np.uint8)
COLOURS = np.random.default_rng(1).integers(0, 256, (5, 7, 3), dtype=np.uint8)
DEEP = np.random.default_rng(2).integers(0, 2**16, (5, 7), dtype=np.uint16)
SUFFIXES = {"PNG": ".png", "GIF": ".gif", "TIFF": ".tif", "BMP": ".bmp", "JPEG": ".jpg"}
LOSSLESS = (".png", ".tif", ".tiff", ".bmp")


def read(path: Path) -> np.ndarray:
    return ImageFiles([path])[0]


def save(path: Path, array: np.ndarray, **options) -> Path:
    Image.fromarray(array).save(path, **options)
    return path


# --- what pixels become ---------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [*LOSSLESS, ".gif", ".pgm", ".PNG"])
def test_grey_of_8_bits(tmp_path, suffix):
    array = read(save(tmp_path / f"a{suffix}", GREY))
    assert array.dtype == np.uint8
    np.testing.assert_array_equal(array, GREY)


@pytest.mark.parametrize("suffix", [".png", ".tif", ".pgm"])
def test_grey_of_16_bits(tmp_path, suffix):
    array = read(save(tmp_path / f"a{suffix}", DEEP))
    assert array.dtype == np.uint16
    np.testing.assert_array_equal(array, DEEP)


@pytest.mark.parametrize("suffix", [*LOSSLESS, ".ppm"])
def test_colours(tmp_path, suffix):
    np.testing.assert_array_equal(read(save(tmp_path / f"a{suffix}", COLOURS)), COLOURS)


def test_one_bit_becomes_grey(tmp_path):
    Image.fromarray(GREY > 100).save(tmp_path / "a.png")
    np.testing.assert_array_equal(read(tmp_path / "a.png"), 255 * (GREY > 100))


def palette_image(colours: list[tuple[int, int, int]]) -> Image.Image:
    image = Image.fromarray(GREY % 4).convert("L")
    image.putpalette([level for colour in colours for level in colour])
    return image


@pytest.mark.parametrize("suffix", [".gif", ".png"])
def test_a_palette_of_greys_becomes_grey(tmp_path, suffix):
    levels = np.array([10, 250, 3, 77], dtype=np.uint8)
    palette_image([(level,) * 3 for level in levels.tolist()]).save(tmp_path / f"a{suffix}")
    np.testing.assert_array_equal(read(tmp_path / f"a{suffix}"), levels[GREY % 4])


def test_a_palette_of_colours_becomes_rgb(tmp_path):
    colours = [(1, 2, 3), (4, 5, 6), (7, 8, 9), (10, 11, 12)]
    palette_image(colours).save(tmp_path / "a.gif")
    np.testing.assert_array_equal(read(tmp_path / "a.gif"), np.array(colours)[GREY % 4])


@pytest.mark.parametrize(("base", "shape"), [(GREY, (5, 7, 2)), (COLOURS, (5, 7, 4))])
def test_opaque_alpha_is_dropped_and_other_alpha_refused(tmp_path, base, shape):
    with_alpha = np.full(shape, 255, dtype=np.uint8)
    with_alpha[..., :-1] = base.reshape(5, 7, -1)
    np.testing.assert_array_equal(read(save(tmp_path / "a.png", with_alpha)), base)
    with_alpha[2, 3, -1] = 254
    with pytest.raises(ValueError, match=r"b\.png: 1 of its 35 pixels are not opaque"):
        read(save(tmp_path / "b.png", with_alpha))


@pytest.mark.parametrize(
    ("array", "used", "unused"),
    [
        (GREY, int(GREY[1, 1]), 128),
        (DEEP, int(DEEP[1, 1]), 12345),
        (COLOURS, tuple(COLOURS[1, 1].tolist()), (0, 0, 0)),
    ],
)
def test_a_transparent_value_is_refused_only_if_it_occurs(tmp_path, array, used, unused):
    path = save(tmp_path / "a.png", array, transparency=unused)
    np.testing.assert_array_equal(read(path), array)
    with pytest.raises(ValueError, match="not opaque"):
        read(save(tmp_path / "b.png", array, transparency=used))


@pytest.mark.parametrize("suffix", [".gif", ".tif"])
def test_the_first_of_several_frames_is_read(tmp_path, suffix):
    others = [Image.fromarray(255 - GREY), Image.fromarray(GREY.T.copy().reshape(5, 7))]
    path = save(tmp_path / f"a{suffix}", GREY, save_all=True, append_images=others)
    with Image.open(path) as image:
        assert image.n_frames == 3
    np.testing.assert_array_equal(read(path), GREY)


@pytest.mark.parametrize(
    ("mode", "name"), [("CMYK", "a.jpg"), ("F", "a.tif"), ("I", "a.tif"), ("YCbCr", "a.tif")]
)
def test_other_modes_are_refused(tmp_path, mode, name):
    Image.fromarray(COLOURS).convert("L" if mode in "FI" else "RGB").convert(mode).save(
        tmp_path / name
    )
    with pytest.raises(ValueError, match=f"{name}: its pixels have the Pillow mode '{mode}'"):
        read(tmp_path / name)


# --- a lazy sequence ------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path) -> ImageFiles:
    return ImageFiles([save(tmp_path / f"{i}.png", np.roll(GREY, i)) for i in range(12)])


def test_is_a_sequence(files):
    assert len(files) == 12
    np.testing.assert_array_equal(files[-1], np.roll(GREY, 11))
    np.testing.assert_array_equal(files[np.int64(3)], np.roll(GREY, 3))
    part = files[2:8:3]
    assert isinstance(part, ImageFiles)
    assert [path.name for path in part.paths] == ["2.png", "5.png"]
    assert sum(1 for _ in files) == 12
    assert repr(files) == "ImageFiles(12 files)"
    for index in (12, -13):
        with pytest.raises(IndexError):
            files[index]


@pytest.mark.parametrize(
    "index", [np.array([3, -1]), [3, 11], np.isin(np.arange(12), [3, 11]), np.uint8([3, 11])]
)
def test_several_are_chosen_without_reading_them(tmp_path, index):
    files = ImageFiles(tmp_path / f"{i}.png" for i in range(12))
    part = files[index]
    assert isinstance(part, ImageFiles)
    assert [path.name for path in part.paths] == ["3.png", "11.png"]
    assert len(files[[]]) == 0


@pytest.mark.parametrize("index", [[12], [0.5], [True], [[1, 2]]])
def test_what_chooses_nothing(files, index):
    with pytest.raises(IndexError):
        files[index]


def test_cross_validation_takes_it(files):
    labels = np.arange(12) % 2
    pipeline = make_pipeline(
        RegionCovariance(["I", "|Ix|"]),
        FunctionTransformer(lambda matrices: matrices.reshape(len(matrices), -1)),
        KNeighborsClassifier(1),
    )
    expected = cross_val_score(pipeline, list(files), labels, cv=3)
    np.testing.assert_array_equal(cross_val_score(pipeline, files, labels, cv=3), expected)


def test_natural_order(tmp_path):
    names = ["10.png", "9.gif", "a2b10.png", "a2b9.png", "a10b1.png", "01.png", "1.png"]
    for name in [*names, ".hidden.png", "notes.txt", "noise"]:
        (tmp_path / name).touch()
    (tmp_path / "folder.png").mkdir()
    assert [path.name for path in list_images(tmp_path)] == [
        "01.png",
        "1.png",
        "9.gif",
        "10.png",
        "a2b9.png",
        "a2b10.png",
        "a10b1.png",
    ]
    assert natural_key(Path("a")) < natural_key(Path("a1"))


def test_without_pillow_the_extra_is_named(files, uninstall):
    uninstall("PIL")
    with pytest.raises(ImportError, match=r'pip install "divlearn\[images\]"'):
        files[0]


# --- hostile files --------------------------------------------------------------------------------


def encoded(format: str, array: np.ndarray = GREY) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(array).save(stream, format)
    return stream.getvalue()


def png_header(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"\0" * 100))


@pytest.mark.parametrize(
    ("width", "height"),
    [(8193, 8192), (12_000, 12_000), (2**31 - 1, 2**31 - 1)],
)
@pytest.mark.parametrize("action", ["error", "ignore"])
def test_decompression_bombs_are_refused_by_their_headers(tmp_path, width, height, action):
    path = tmp_path / "bomb.png"
    path.write_bytes(png_header(width, height))
    with warnings.catch_warnings():
        warnings.simplefilter(action)
        with pytest.raises(ValueError, match=r"bomb\.png: .*pixels.*cut it into smaller images"):
            read(path)


def test_the_limit_is_the_documented_one(tmp_path):
    assert LARGEST_IMAGE == 2**26
    path = tmp_path / "large.png"
    path.write_bytes(png_header(2**13, 2**13))
    with pytest.raises(ValueError, match=r"large\.png: the file is damaged"):
        read(path)  # which is not refused by its header, but has a hundred of its pixels only


@pytest.mark.parametrize("format", [*SUFFIXES, "PPM"])
def test_truncated_files(tmp_path, format):
    path = tmp_path / f"cut{SUFFIXES.get(format, '.pgm')}"
    whole = encoded(format, np.random.default_rng(0).integers(0, 256, (40, 40), dtype=np.uint8))
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=f"cut{path.suffix}: .* again"):
        read(path)


@pytest.mark.parametrize("format", [*SUFFIXES, "PPM"])
def test_nothing_but_value_errors_escapes(tmp_path, format):
    path = tmp_path / f"fuzz{SUFFIXES.get(format, '.pgm')}"
    whole = encoded(format)
    rng = np.random.default_rng(0)
    problems = []
    for trial in range(60):
        content = np.frombuffer(whole, np.uint8).copy()
        content[rng.integers(len(content), size=3)] = rng.integers(256, size=3)
        length = len(content) if trial % 2 else rng.integers(len(content))
        path.write_bytes(content[:length].tobytes())
        try:
            assert read(path).dtype in (np.uint8, np.uint16)
        except ValueError as error:
            problems.append(str(error))
    assert len(problems) > 8
    assert all(problem.startswith(str(path)) for problem in problems)


@pytest.mark.parametrize("content", [encoded("PPM"), b"", b"%!PS-Adobe-3.0 EPSF-3.0\n", bytes(999)])
@pytest.mark.parametrize("suffix", SUFFIXES.values())
def test_content_of_another_kind(tmp_path, suffix, content):
    path = tmp_path / f"liar{suffix}"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"liar{suffix}: its content is not the .* image"):
        read(path)


@pytest.mark.parametrize("name", ["a.eps", "a.webp", "a.npy", "png", "a.png.exe"])
def test_other_suffixes_are_refused_at_once(name):
    with pytest.raises(ValueError, match=f"{name}: its suffix .* must be one of .png, .gif"):
        ImageFiles([name])
