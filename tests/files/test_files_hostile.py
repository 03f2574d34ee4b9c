"""Hostile and damaged files: refused with a reason, in bounded memory, and nothing else escapes."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hostile_files import BIG, HOSTILE, LIMIT, N, X, damaged, npy_bytes, npz_bytes
from spd_files import WRITERS, write_npz

from divlearn.files import SPDFile, read_spd
from divlearn.spd import check_spd

COUNT = int(os.environ.get("DIVLEARN_MUTATIONS", 240))
CHECKED = ("npz", "npz compressed", "mat compressed", "mat compressed text")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Where the hostile files are."""
    folder = tmp_path_factory.mktemp("hostile")
    for name, (build, _) in HOSTILE.items():
        (folder / name).write_bytes(build())
    return folder


@pytest.mark.parametrize("name", HOSTILE)
def test_refused_with_a_reason(folder, name):
    with pytest.raises(ValueError, match=f"(?s)^{name}: .*{HOSTILE[name][1]}") as caught:
        read_spd(folder / name, limit=LIMIT)
    assert caught.value.__cause__ is not None


def test_memory_stays_bounded(folder):
    """All of them once more, where memory for a bomb is not to be had and its use is measured."""
    if not Path("/proc/self/statm").exists():
        pytest.skip("the use of memory is read from /proc")
    code = """
import json, resource, sys
from pathlib import Path
import h5py, scipy.io
from divlearn.files import read_spd
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (in_use + int(sys.argv[3]),) * 2)
messages = {}
for path in Path(sys.argv[1]).iterdir():
    try:
        read_spd(path, limit=int(sys.argv[2]))
    except ValueError as error:
        messages[path.name] = str(error)
growth = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak
print(json.dumps([messages, growth]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder), str(LIMIT), str(BIG)],
        capture_output=True,
        text=True,
        timeout=900,  # far beyond what the busiest machine needs
        check=True,
    )
    messages, growth = json.loads(done.stdout)
    assert set(messages) == set(HOSTILE)
    assert not [text for text in messages.values() if "not enough memory" in text]
    assert growth < BIG // 1024 // 2


# --- truncation and damage, seeded ----------------------------------------------------------------


def valid_files(folder: Path) -> dict[str, bytes]:
    labels = {"y": np.arange(N)}
    files = {"npy": npy_bytes(X)}
    for name, write in WRITERS.items():
        write(folder / "valid", {"X": X, **labels})
        files[name] = (folder / "valid").read_bytes()
    texts = np.array(["a", "bb", "", "a", "bb", "é"], object)
    # Not those of HDF5: its library may not come back from a damaged heap of strings.
    for name in ("mat", "mat compressed"):
        WRITERS[name](folder / "valid", {"X": X, "y": texts})
        files[f"{name} text"] = (folder / "valid").read_bytes()
    return files


def load_or_refuse(path: Path, content: bytes) -> SPDFile | None:
    """What is loaded, if anything; all but a ValueError that names the file is raised."""
    path.write_bytes(content)
    try:
        return read_spd(path, limit=LIMIT)
    except ValueError as error:
        if str(error).startswith(f"{path.name}: "):
            return None
        raise


def test_every_truncated_file_is_refused(tmp_path):
    generator = random.Random(0)
    for name, content in valid_files(tmp_path).items():
        assert load_or_refuse(tmp_path / "valid", content), name
        # HDF5 files end with what the library reserved and did not use.
        used = len(content) if "hdf5" not in name and "7.3" not in name else 2000
        for length in {0, 1, 8, 128, used - 1, *generator.sample(range(used), 12)}:
            assert not load_or_refuse(tmp_path / "cut", content[:length]), (name, length)


def test_damage_is_refused_or_harmless(tmp_path):
    """What has checksums loads unchanged or not at all; the rest loads as SPD matrices if it does.

    Formats without checksums cannot know that a number in the middle was another one.
    """
    generator, files = random.Random(1), valid_files(tmp_path)
    outcomes = dict.fromkeys(files, 0)
    each = -(-COUNT // len(files))
    for name, content in files.items():
        for _ in range(each):
            found = load_or_refuse(tmp_path / "damaged", damaged(content, generator))
            if found is None:
                continue
            outcomes[name] += 1
            if name in CHECKED:
                np.testing.assert_array_equal(found.matrices, X)
            check_spd(found.matrices, ndim=3)
            assert found.labels is None or len(found.labels) == len(found.matrices)
    assert all(n < each for n in outcomes.values())
    assert any(outcomes.values())


# --- where files are ------------------------------------------------------------------------------


def test_members_with_paths_are_read_and_not_extracted(working_folder):
    path = working_folder / "data"
    path.write_bytes(npz_bytes({"../up/X.npy": npy_bytes(X), "/y.npy": b""}))
    with pytest.raises(ValueError, match="header of an array cannot be read"):
        read_spd("data")
    path.write_bytes(npz_bytes({"../up/X.npy": npy_bytes(X), "../../etc": b"text"}))
    np.testing.assert_array_equal(read_spd("data").matrices, X)
    np.testing.assert_array_equal(read_spd("data", matrices="../up/X").matrices, X)
    assert os.listdir() == ["data"]


def test_names_from_the_file_are_escaped_and_cut(tmp_path):
    name = "\x1b[31m" + "a" * 200
    write_npz(tmp_path / "data", {name: np.ones((2, 3))})
    with pytest.raises(ValueError, match=r"^data: .* it holds '\\x1b\[31ma+\.\.\.' \(2, 3\)"):
        read_spd(tmp_path / "data")


def test_what_cannot_be_opened(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_spd(tmp_path / "missing.npz")
    with pytest.raises(IsADirectoryError):
        read_spd(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match=r"^pipe: it is a device, pipe or socket; copy the data"):
        read_spd(tmp_path / "pipe")
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    (tmp_path / "locked").touch(mode=0)
    with pytest.raises(PermissionError):
        read_spd(tmp_path / "locked")


def test_memory_that_is_not_there(tmp_path, monkeypatch):
    def no_memory(*arguments: object, **options: object) -> None:
        raise MemoryError

    write_npz(tmp_path / "data", {"X": X})
    monkeypatch.setattr(np.lib.format, "read_array", no_memory)
    with pytest.raises(ValueError, match=r"^data: there is not enough memory for it; .* limit="):
        read_spd(tmp_path / "data")
