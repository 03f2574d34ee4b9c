"""Tables of the benchmarks on a GPU, as Markdown."""

from __future__ import annotations

from typing import Any

__all__ = ["markdown"]


def short(rate: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if rate >= size:
            return f"{rate / size:.3g}{letter}"
    return f"{rate:.3g}"


def table(headings: list[str], rows: list[list[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def rate_rows(rates: dict[str, Any], section: str) -> list[list[str]]:
    """One row per method, one column per dimension, then our ratios."""
    names = [
        name
        for name in ("cuda", "torch", "cupy", "native")
        if any(section in found[name] for found in rates.values())
    ]
    rows = [
        [name, *(short(f[name][section]) if section in f[name] else "" for f in rates.values())]
        for name in names
    ]
    for other in names[1:]:
        ratios = [found["cuda"][section] / found[other][section] for found in rates.values()]
        rows.append([f"cuda over {other}", *(f"{ratio:,.0f}x" for ratio in ratios)])
    return rows


def markdown(results: dict[str, Any]) -> str:
    rates, versions = results["rates"], results["versions"]
    headings = ["d", *rates]
    sections = [
        ("Values", "values", "Whitening, eigenvalues and f at (0.7, 0.9)."),
        (
            "Gradient",
            "gradient",
            "Atoms, alpha and beta at (0.7, 0.9), summed over the data; for torch atoms alone.",
        ),
        ("alpha + beta = 1, values", "theta = 1", "Log-determinants, no eigenvalues."),
    ]
    parts = [
        "# Benchmarks on a GPU",
        "Made by `python benchmarks/gpu.py --json benchmarks/results/cuda.json --markdown "
        "docs/benchmarks_gpu.md`; do not edit.",
        f"{results['gpu']}; divlearn {versions['divlearn']}, CuPy {versions['cupy']}, torch "
        f"{versions['torch']}, NumPy {versions['numpy']}; native engine on "
        f"{results['cores']} cores of the same machine, {results['instruction_set']}. "
        "float64, Wishart data, pairs (matrix, atom) per second, "
        "public verbs with the data on the device that works on it; medians of five runs, of three "
        "for others, of one for torch and CuPy at d > 32, each after one to warm up. torch: "
        "`torch.linalg.eigvalsh`/`eigh` of whitened matrices with the products and f around "
        "them, in chunks of 16,384 (1,024 for d > 32).",
        f"Measured roofs: {results['roofs']['dgemm'] / 1e12:.1f} TFLOP/s (float64 product), "
        f"{results['roofs']['copy'] / 1e12:.2f} TB/s (copy, read and written).",
    ]
    for title, key, text in sections:
        parts += [f"## {title}", text, table(headings, rate_rows(rates, key))]
    more = [
        [label, *(short(found["cuda"][key]) for found in rates.values())]
        for label, key in (
            ("alpha + beta = 1, gradient", "theta = 1, gradient"),
            ("(0, 1), values", "(0, 1)"),
            ("values, every pencil by the accurate route", "accurate"),
        )
    ]
    worst = [f"{found['cuda']['relative difference']:.1e}" for found in rates.values()]
    more.append(["largest relative difference from the reference engine, values", *worst])
    parts += ["## Other routes of the CUDA engine", table(headings, more)]
    parts += [
        "## Wide and clustered spectra",
        "How many times slower than on well-conditioned matrices, values / gradient, pencils of "
        "matrices of each kind at (0.7, 0.9). Learning asks for an accuracy of 1e-6.",
        table(["d", "accuracy", *next(iter(results["hard"]["24"].values()))], hard_rows(results)),
    ]
    parts += ["## Whole tasks", table(["task", "time"], task_rows(results)), SMALL_FITS]
    return "\n\n".join(parts) + "\n"


def hard_rows(results: dict[str, Any]) -> list[list[str]]:
    rows = []
    for d, found in results["hard"].items():
        for accuracy, kinds in found.items():
            easy = kinds["well-conditioned"]
            ratios = [
                " / ".join(f"{easy[verb] / rates[verb]:.1f}" for verb in ("values", "gradient"))
                for rates in kinds.values()
            ]
            rows.append([d, accuracy, *ratios])
    return rows


SMALL_FITS = (
    "Fits of 1,000 matrices gain less than the kernels: in a profile of the 40 joint iterations "
    "the host waits for the GPU a fifth of the time. The rest is Python, and the launch of some "
    "1,000 small kernels."
)


def task_rows(results: dict[str, Any]) -> list[list[str]]:
    rows = [
        [f"encode 12,000 x 255, d = 18: {name}", milliseconds(time)]
        for name, time in results["encode"].items()
    ]
    rows.append(
        ["encode 1e7 pairs in one call, d = 18", milliseconds(results["ten million"]["seconds"])]
    )
    one = results["objective"]
    rows.append(
        [
            "IDDL, one objective and gradient, 13,375 x 775, d = 51",
            f"{milliseconds(one['objective'])} + {milliseconds(one['gradient'])}",
        ]
    )
    fit = results["fit"]
    kinds = {"": "1,000 x 75, d = 29, 40 joint iterations", ", default": "1,000, d = 29, defaults"}
    for kind, text in kinds.items():
        for engine in ("cuda", "native", "reference"):
            if (name := engine + kind) in fit:
                objective = fit[f"{name}, objective"]
                rows.append(
                    [
                        f"IDDL fit, {text}, engine={engine!r} (objective {objective:.6g})",
                        milliseconds(fit[name]),
                    ]
                )
    return rows
