"""The program: its commands, its errors as one sentence, its exit codes."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from considerate import __version__
from considerate.cli import demo, evaluate, fit, inspect, recommend, simulate, study
from considerate.cli.screen import complain
from considerate.errors import ConsiderateError


class Interrupted(ConsiderateError):
    """Ctrl-C, where a command has nothing of its own to do about it."""

    exit_code = 130


class Program(TyperGroup):
    """A group of commands whose errors are one line on stderr: 2 for bad use and bad data, 1 for a run that failed,
    130 for Ctrl-C."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:  # which versions of typer treat differently
            raise Interrupted("interrupted; no file was left half-written.") from error

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        def run() -> Any:
            return super(Program, self).main(args, prog_name, complete_var, False, windows_expand_args, **extra)

        if not standalone_mode:
            return run()
        sys.exit(guarded(run))


def guarded(run: Callable[[], Any]) -> int:
    """Run, and answer with an exit code; what went wrong in the user's world is said in one line."""
    try:
        code = run()
    except ConsiderateError as error:
        return complain(str(error), error.exit_code)
    except BrokenPipeError:
        _drop_output()
        return 1
    except MemoryError:
        return complain("there is not enough memory for this; free some, or use less data or fewer factors.", 1)
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        return complain(f"{place}{error.strerror or error}; check the path, its permissions and the disk.", 1)
    except Exception as error:
        if not hasattr(error, "format_message"):  # what typer raises for bad use has it
            raise
        context = getattr(error, "ctx", None)
        path = context.command_path if context is not None else "considerate"
        return complain(f"{str(error.format_message()).strip()} (see `{path} --help`)", 2)
    return code if isinstance(code, int) else 0


def _drop_output() -> None:
    """Whoever read the output is gone: what Python would still flush at its end goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


app = typer.Typer(
    name="considerate",
    cls=Program,
    help="Recommendations from likes alone: p(like | considered), kept apart from popularity, with its uncertainty.",
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


app.command("fit")(fit.fit)
app.command("recommend")(recommend.recommend)
app.command("evaluate")(evaluate.evaluate)
app.command("inspect")(inspect.inspect)
app.command("study")(study.study)
app.command("simulate")(simulate.simulate)
app.command("demo")(demo.demo)


def main() -> None:
    """The entry point."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that lacks a letter shows a question mark
    app(prog_name="considerate")
