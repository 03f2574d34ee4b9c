"""Build divlearn as users get it, and prove that it installs: `make package`.

    python tools/package.py [--folder dist] [CASE ...]
    python tools/package.py --print-oldest    # the dependencies of the case "oldest", for pip

The source distribution and, from it alone, two wheels are built: for this platform, and without
the compiled engine for all others. Each case then installs one of them into an empty environment
whose PATH has no compiler, and runs tools/smoke.py there:

    plain       the wheel of this platform without extras
    pure        the wheel of all platforms
    source      the source distribution, where no C++ compiler works
    oldest      the oldest dependencies that pyproject.toml allows, extras but cuda and torch too
    EXTRA       the wheel with one extra of pyproject.toml

All cases but cuda and torch, whose packages are large, run by default.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = [name for name in PROJECT["optional-dependencies"] if name not in ("test", "docs")]
LARGE = ("cuda", "torch")
SMALL = [extra for extra in EXTRAS if extra not in LARGE]


def run(command: list[object], **changes: str) -> None:
    """Run a command in an environment with some changes; show its output only if it fails."""
    done = subprocess.run(
        [str(word) for word in command],
        env=os.environ | changes,
        text=True,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if done.returncode:
        sys.exit(f"{done.stdout}\nfailed: {' '.join(map(str, command))}")
    if "smoke.py" in str(command):
        print(f"    {done.stdout.splitlines()[-1]}", flush=True)


def build(folder: Path) -> dict[str, Path]:
    """Build the source distribution and both wheels; return their paths by kind."""
    shutil.rmtree(folder, ignore_errors=True)
    python = make_environment(folder / "building")
    run([python, "-m", "pip", "install", "--quiet", "build"])
    run([python, "-m", "build", "--sdist", "--outdir", folder, ROOT])
    [source] = folder.glob("*.tar.gz")
    wheel = [python, "-m", "pip", "wheel", "--quiet", "--no-deps", source, "--wheel-dir", folder]
    run(wheel)
    [native] = folder.glob("*.whl")
    run(wheel, DIVLEARN_NO_NATIVE="1")
    [pure] = set(folder.glob("*.whl")) - {native}
    for path in (source, native, pure):
        print(f"{path.name}  {path.stat().st_size / 1024:.0f} KB", flush=True)
    return {"source": source, "native": native, "pure": pure}


def make_environment(folder: Path) -> Path:
    """Make an empty environment; return its Python."""
    run([sys.executable, "-m", "venv", "--clear", folder])
    return folder / ("Scripts" if os.name == "nt" else "bin") / "python"


def check(case: str, built: dict[str, Path], folder: Path) -> None:
    """Install one case without a compiler on the PATH, and run the smoke test."""
    extras = SMALL if case == "oldest" else [case] if case in EXTRAS else []
    package = built.get(case, built["native"])
    python = make_environment(folder / "environment")
    alone = {"PATH": str(python.parent), "CXX": "no-compiler", "OPENBLAS_NUM_THREADS": "1"}
    suffix = f"[{','.join(extras)}]" if extras else ""
    oldest = oldest_dependencies(extras) if case == "oldest" else []
    print(case, *oldest, flush=True)
    install = [python, "-m", "pip", "install", "--quiet", "--no-compile"]
    run([*install, f"{package}{suffix}", *oldest], **alone)
    run([python, "-I", ROOT / "tools" / "smoke.py", *extras], **alone)
    engine = "native" if package == built["native"] else "reference"
    asked = f"import divlearn; assert divlearn.available_engines()[0] == '{engine}'"
    run([python, "-I", "-c", asked], **alone)


def oldest_dependencies(extras: list[str]) -> list[str]:
    """Return the lower bounds of pyproject.toml as exact versions."""
    needed = [*PROJECT["dependencies"]]
    for extra in extras:
        needed += PROJECT["optional-dependencies"][extra]
    return [requirement.replace(">=", "==") for requirement in needed]


def main() -> None:
    """Build, then check the cases that were asked for."""
    cases = ["plain", "pure", "source", "oldest", *EXTRAS]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=ROOT / "dist")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(cases))
    parser.add_argument("--print-oldest", action="store_true")
    given = parser.parse_args()
    if given.print_oldest:
        print(*oldest_dependencies(SMALL), sep="\n")
        return
    if unknown := set(given.cases) - set(cases):
        parser.error(f"unknown cases {sorted(unknown)}; choose from {', '.join(cases)}")
    folder = given.folder.resolve()
    built = build(folder)
    for case in given.cases or [case for case in cases if case not in LARGE]:
        check(case, built, folder)
    for scratch in ("building", "environment"):
        shutil.rmtree(folder / scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
