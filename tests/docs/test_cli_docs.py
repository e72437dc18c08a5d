"""docs/cli.md is what docs/generate_cli.py makes of the program."""

from __future__ import annotations

import runpy

from tests.helpers.paths import ROOT

DOCS = ROOT / "docs"


def test_the_page_is_what_the_generator_prints() -> None:
    page = runpy.run_path(str(DOCS / "generate_cli.py"))["page"]
    assert page() == (DOCS / "cli.md").read_text(encoding="utf-8"), "run `make docs`"


def test_the_page_has_every_command_and_option() -> None:
    from typer.main import get_command

    from considerate.cli import app

    page = (DOCS / "cli.md").read_text(encoding="utf-8")
    for name, command in get_command(app).commands.items():  # type: ignore[attr-defined]
        assert f"## considerate {name}\n" in page
        for one in command.params:
            if one.param_type_name == "option":
                assert all(f"`{flag}`" in page for flag in one.opts if flag not in ("--help", "-h"))
