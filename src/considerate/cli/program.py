"""The program: its commands, its one-line errors and its exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from considerate._version import __version__
from considerate.cli import (
    INTERRUPTED,
    NO_MEMORY,
    demo,
    evaluate,
    features,
    find,
    fit,
    forget,
    graph,
    index,
    inspect,
    recalibrate,
    recommend,
    refit,
    serve,
    simulate,
    study,
    update,
)
from considerate.cli.screen import complain
from considerate.errors import ConsiderateError


class Program(TyperGroup):
    """A group of commands whose errors are one line on stderr.

    Exit codes: 2 for bad use and bad data, 1 for a run that failed, 130 for Ctrl-C, 141 if nobody reads stdout.
    """

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        with _signals():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: Any) -> Any:
        with _signals():
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result

    def main(self, *arguments: Any, **options: Any) -> Any:
        """Run the program and exit; if `standalone_mode` is off, return and raise like typer."""
        if not options.get("standalone_mode", True):
            return super().main(*arguments, **options)
        if os.environ.get("COLUMNS", "").strip("0") == "":
            os.environ.pop("COLUMNS", None)  # a width of 0 means unknown; rich would print nothing
        with _errors():
            code = super().main(*arguments, **{**options, "standalone_mode": False})
            sys.exit(code if isinstance(code, int) else 0)


@contextmanager
def _signals() -> Iterator[None]:
    """Print one line for Ctrl-C and none for a closed pipe, in place of what typer prints."""
    try:
        yield
    except KeyboardInterrupt:
        raise typer.Exit(complain(INTERRUPTED, 130)) from None
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes stdout at its end
        raise typer.Exit(141) from None


@contextmanager
def _errors() -> Iterator[None]:
    """Print an error that the user can understand in one line, and exit."""
    try:
        yield
    except ConsiderateError as error:
        sys.exit(complain(str(error), error.exit_code))
    except MemoryError:
        sys.exit(complain(NO_MEMORY, 1))
    except OSError as error:
        path = f"{error.filename}: " if error.filename else ""
        sys.exit(complain(f"{path}{error.strerror or error}; check the path, its permissions and the disk.", 1))
    except Exception as error:
        if not hasattr(error, "format_message"):  # typer's errors of bad use have it
            raise
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else "considerate"
        sys.exit(complain(f"{str(error.format_message()).strip()} (see `{command} --help`)", 2))


app = typer.Typer(
    name="considerate",
    cls=Program,
    help="Recommendations from likes alone: p(like | considered), separated from p(considered), with its uncertainty.",
    epilog="Start with `considerate demo`, then `considerate fit likes.parquet -o model.safetensors`.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def program(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and end.", is_eager=True)] = False,
) -> None:
    if version:
        typer.echo(f"considerate {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit


COMMANDS = {"fit": fit, "recommend": recommend, "find": find, "similar": find, "index": index, "evaluate": evaluate}
COMMANDS |= {
    "recalibrate": recalibrate,
    "update": update,
    "forget": forget,
    "add-items": features,
    "inspect": inspect,
    "study": study,
}
COMMANDS |= {"serve": serve, "refit": refit, "simulate": simulate, "demo": demo}
COMMANDS |= {"fit-graph": graph, "evaluate-graph": graph}
for name, module in COMMANDS.items():
    app.command(name)(getattr(module, name.replace("-", "_")))
