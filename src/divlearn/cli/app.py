"""The commands of the program, and how errors are reported."""

import functools
import os
import sys
import warnings
from collections.abc import Callable, Sequence

import typer

from divlearn.atomic import naming_full_disk
from divlearn.cli.cluster import cluster
from divlearn.cli.demo import demo
from divlearn.cli.describe import describe
from divlearn.cli.doctor import doctor
from divlearn.cli.evaluate import evaluate
from divlearn.cli.fit import fit
from divlearn.cli.messages import INTERRUPTED, NOTHING_KEPT, with_options
from divlearn.cli.output import escape_unknown
from divlearn.cli.predict import predict
from divlearn.cli.which import which
from divlearn.text import harmless

_HELP = """Which divergence should I use on my SPD matrices? Answers from your own data.

From a folder of images, one sub-folder for each class, to a model and a report:

    divlearn describe IMAGES -o matrices.npz

    divlearn fit matrices.npz -o model.divlearn --report report.html

    divlearn predict model.divlearn new.npz

DATA are matrices of shape (n, d, d) in a .npz, .npy, .mat, .csv or HDF5 file, with labels if
there are any. Exit codes: 0 done, 1 error (one sentence says which), 2 wrong options, 3 interrupted
with the best result so far kept, 130 interrupted with nothing kept.
"""
_COMMANDS = (demo, describe, doctor, which, fit, predict, evaluate, cluster)
_OUTPUT = "standard output"


def _show_version(requested: bool) -> None:
    if requested:
        import divlearn

        print(f"divlearn {divlearn.__version__}")
        raise typer.Exit


def _version_option(
    version: bool = typer.Option(
        False, "--version", help="Show the version.", is_eager=True, callback=_show_version
    ),
) -> None:
    pass


@functools.cache
def _program(
    commands: tuple[Callable[..., None], ...],
) -> Callable[[Sequence[str] | None], object]:
    """Return the function of arguments that calls one of the commands, and ends by SystemExit."""
    app = typer.Typer(
        name="divlearn",
        help=_HELP,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback()(_version_option)
    for command in commands:
        app.command()(_handle_ctrl_c(command))
    return typer.main.get_command(app)


def run(argv: Sequence[str] | None = None) -> int:
    """Run the program on arguments, by default `sys.argv`; return the exit code."""
    escape_unknown(sys.stdout)
    try:
        # Errors of writing to files name these files, other errors of writing name the output.
        with naming_full_disk(_OUTPUT), warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: _print_error(_describe(message))
            try:
                _program(_COMMANDS)(argv)
            finally:
                sys.stdout.flush()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        _drop_output()
        return 1
    except (ValueError, TypeError, OSError, ImportError, MemoryError, FloatingPointError) as error:
        if isinstance(error, OSError) and error.filename == _OUTPUT:
            _drop_output()
        _print_error(_describe(error))
        return 1
    return 0


def _handle_ctrl_c(command: Callable[..., None]) -> Callable[..., None]:
    """Handle Ctrl-C before typer does, which uses other exit codes."""

    @functools.wraps(command)
    def handling(*arguments: object, **options: object) -> None:
        try:
            command(*arguments, **options)
        except KeyboardInterrupt as interrupt:
            _print_error(f"interrupted; {_describe(interrupt)}" if interrupt.args else NOTHING_KEPT)
            raise typer.Exit(INTERRUPTED) from None

    return handling


def _drop_output() -> None:
    """Discard the rest of the output, which Python would try to write at its exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _describe(error: BaseException | str) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}"
    return with_options(" ".join(str(error).split())) or type(error).__name__


def _print_error(text: str) -> None:
    print(harmless(f"divlearn: {text}", keep=""), file=sys.stderr)
