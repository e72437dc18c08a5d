"""Writes docs/cli.md from the program itself; `--print` prints it instead.

    python docs/generate_cli.py

A test compares the page with what this prints.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from typer.main import get_command

from considerate.cli import app

PAGE = Path(__file__).with_name("cli.md")
EXAMPLES = {
    "fit": (
        "considerate fit likes.parquet -o model.safetensors",
        'considerate fit ratings.csv --where "rating >= 4" --titles movies.csv -o model.safetensors',
        'considerate fit sqlite:///shop.db --query "select customer, product from orders" -o model.safetensors',
        "considerate fit likes.parquet -o model.safetensors --checkpoint kept/ --resume",
    ),
    "recommend": (
        "considerate recommend model.safetensors 42",
        "considerate recommend model.safetensors 42 43 --count 5 --popularity 0 --explain",
        "considerate recommend model.safetensors --items 1193 --items 2028",
        "considerate recommend model.safetensors --all-users -o recommendations.parquet",
        "considerate recommend model.safetensors --export-vectors vectors.parquet",
    ),
    "find": ("considerate find model.safetensors blade runner",),
    "similar": (
        "considerate similar model.safetensors 1193",
        'considerate similar model.safetensors "blade runner" --count 5 --json',
    ),
    "add-items": [
        "considerate add-items model.safetensors arrivals.csv --titles arrivals.csv -o model2.safetensors",
    ],
    "index": (
        "considerate index model.safetensors -o items.index",
        "considerate recommend model.safetensors 42 --index items.index --probes 64",
    ),
    "evaluate": (
        "considerate evaluate model.safetensors test.parquet",
        'considerate evaluate model.safetensors test.parquet --where "rating >= 4" -k 20 --popularity 1 --json',
        'considerate evaluate model.safetensors test.parquet --where "rating >= 4" --recalibrate better.safetensors',
    ),
    "recalibrate": (
        'considerate recalibrate model.safetensors ratings.csv --where "rating >= 4" -o better.safetensors',
        "considerate recalibrate model.safetensors judged.parquet -o better.safetensors --json",
    ),
    "fit-graph": (
        "considerate fit-graph friends.parquet -o graph.safetensors",
        "considerate fit-graph links.csv --user-column page --item-column links_to --popularity auto -o g.safetensors",
        "considerate recommend graph.safetensors ann",
    ),
    "evaluate-graph": ("considerate evaluate-graph graph.safetensors later.parquet --json",),
    "update": (
        "considerate update model.safetensors today.parquet -o model.safetensors",
        'considerate update model.safetensors ratings.csv --where "rating >= 4" --days 7 -o next.safetensors',
        "considerate update model.safetensors today.parquet --removed withdrawn.parquet -o next.safetensors",
    ),
    "forget": (
        "considerate forget model.safetensors 42 -o model.safetensors",
        "considerate forget shards/ @leavers.txt -o shards/",
    ),
    "inspect": (
        "considerate inspect likes.parquet --hidden",
        "considerate inspect model.safetensors --json",
    ),
    "study": (
        "considerate study likes.parquet -o report/",
        'considerate study ratings.parquet --where "rating >= 4" -o report/',
        'considerate study train.parquet --where "rating >= 4" --judged test.parquet -o report/',
    ),
    "serve": (
        "considerate serve --demo",
        "considerate serve model.safetensors --events events.db",
        "considerate serve model.safetensors --events events.db --host 0.0.0.0 --workers 4 --api-key-file key",
    ),
    "refit": (
        'considerate refit model.safetensors ratings.parquet --where "rating >= 4" --events events.db',
        "considerate refit model.safetensors --events events.db --how update --every 3600",
    ),
    "simulate": (
        "considerate simulate --users 100000 --items 5000 -o likes.parquet",
        "considerate simulate --from-model --genres 8 -o likes.csv",
        "considerate simulate --xbox -o xbox.parquet",
    ),
    "demo": ("considerate demo",),
}
ENDS = """## Exit codes and messages

0: it worked. 1: the run failed (the disk, the memory, a fit that diverged). 2: bad use, bad data or an unknown id.
130: Ctrl-C. 141: whoever read the output closed it, as `| head` does. What went wrong is one line on stderr that begins
with `considerate:`. Answers go to stdout; notes, warnings and progress to stderr. A file is written beside its place
and renamed: it is the old one or the new one, never half.

Control characters in ids, titles and file names are shown as `?`, so that data cannot command the terminal; `--json`
escapes them.
"""


def page() -> str:
    """The whole page."""
    program: Any = get_command(app)
    parts = [
        "# The shell",
        "<!-- Made by docs/generate_cli.py; do not edit. -->",
        f"{_plain(program.help)}",
        "\n".join(
            f"- [`considerate {name}`](#considerate-{name}): {_first(c)}" for name, c in program.commands.items()
        ),
        "`considerate --version` prints the version, `--help` or `-h` after any command its options.",
    ]
    for name, command in program.commands.items():
        parts.append(_command(name, command))
    return "\n\n".join([*parts, ENDS.strip()]) + "\n"


def _first(command: Any) -> str:
    return _plain(command.help).split("\n\n")[0]


def _command(name: str, command: Any) -> str:
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    options = [one for one in command.params if one.param_type_name == "option" and "--help" not in one.opts]
    usage = " ".join(
        ["considerate", name, "[OPTIONS]", *(f"{_name(one)}{'...' if one.nargs == -1 else ''}" for one in arguments)]
    )
    parts = [f"## considerate {name}", f"```\n{usage}\n```", _plain(command.help)]
    parts.append("```\n" + "\n".join(EXAMPLES[name]) + "\n```")
    if arguments:
        parts.append("\n".join(f"- `{_name(one)}`: {_plain(one.help)}" for one in arguments))
    panels: dict[str, list[Any]] = {}
    for one in options:
        panels.setdefault(one.rich_help_panel or "Options", []).append(one)
    for panel, members in panels.items():
        rows = [f"| {_flags(one)} | {_cell(one.help)} | {_default(one)} |" for one in members]
        parts.append("\n".join([f"### {panel} (`{name}`)", "", "| option | | default |", "|---|---|---|", *rows]))
    return "\n\n".join(parts)


def _name(argument: Any) -> str:
    name = argument.name.upper()
    return name if argument.required else f"[{name}]"


def _flags(option: Any) -> str:
    return ", ".join(f"`{flag}`" for flag in sorted(option.opts, key=len, reverse=True))


def _default(option: Any) -> str:
    if option.required:
        return "needed"
    default = getattr(option.default, "value", option.default)
    return "" if default is None or default is False or default == [] or default == () else f"`{default}`"


def _cell(text: str | None) -> str:
    return _plain(text).replace("|", "\\|").replace("\n", " ")


def _plain(text: str | None) -> str:
    """Help without rich's escapes, each paragraph on one line."""
    paragraphs = re.split(r"\n\s*\n", (text or "").replace("\\[", "[").strip())
    return "\n\n".join(" ".join(one.split()) for one in paragraphs)


if __name__ == "__main__":
    if "--print" in sys.argv:
        sys.stdout.write(page())
    else:
        PAGE.write_text(page(), encoding="utf-8")
