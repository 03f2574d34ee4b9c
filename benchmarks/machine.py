"""The machine that figures were measured on, and the files they are written to."""

from __future__ import annotations

import os
import platform
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_info

import divlearn
from divlearn.engines.compiled import is_compiled


def machine() -> dict[str, Any]:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    models = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    libraries = ("numpy", "scipy", "pyriemann", "spd_learn", "torch")
    versions = {one.name: one.version for one in distributions() if one.name in libraries}
    return {
        "cpu": models[0] if models else platform.machine(),
        "cores": cores(),
        "instruction_sets": list(instruction_sets()),
        "python": platform.python_version(),
        "versions": {"divlearn": divlearn.__version__, **versions},
        "blas": sorted(
            f"{info['internal_api']} {info['version']} {info.get('architecture', '')}".strip()
            for info in threadpool_info()
            if info["user_api"] == "blas"
        ),
    }


def instruction_sets() -> tuple[str, ...]:
    if not is_compiled():
        return ("no compiled engine",)
    from divlearn.engines import native

    return native.instruction_sets()


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def machine_line(about: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    return (
        f"{about['cpu']}, {about['cores']} cores, {'/'.join(about['instruction_sets'])}; "
        f"Python {about['python']}, {versions}; BLAS: {', '.join(about['blas'])}"
    )


def write_between_markers(path: Path, text: str, name: str = "benchmark") -> None:
    """Replace what stands between the markers of a file."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    before, rest = path.read_text().split(begin)
    after = rest.split(end)[1]
    path.write_text(f"{before}{begin}\n{text}\n{end}{after}")
