"""What the site does beyond Sphinx: notebooks that are run, a drawing that forges render, docstrings as plain text, and
the way from the root to the first page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from notebooks import run_cell

REDIRECT = """<!doctype html><html lang="en"><meta charset="utf-8"><title>considerate</title>
<meta http-equiv="refresh" content="0; url={page}"><link rel="canonical" href="{page}">
<a href="{page}">The documentation of considerate</a></html>
"""


class Mermaid(SphinxDirective):
    """A Mermaid graph as its text: forges draw it, a site without scripts from elsewhere does not."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        return [nodes.literal_block(text="\n".join(self.content), language="text")]


class CodeCell(SphinxDirective):
    """A cell of a notebook: its code, what it prints and the figures that it draws. Cells of a page share names."""

    has_content = True
    optional_arguments = 1  # the kernel

    def run(self) -> list[nodes.Node]:
        from matplotlib import pyplot

        pyplot.switch_backend("agg")
        code = "\n".join(self.content)
        namespace = self.env.temp_data.setdefault("notebook", {"__name__": "__main__"})
        shown: list[nodes.Node] = [nodes.literal_block(text=code, language="python")]
        printed = run_cell(code, namespace, self.env.docname)
        if printed:
            shown.append(nodes.literal_block(text=printed.rstrip(), language="text", classes=["printed"]))
        folder = Path(self.env.app.outdir, "_images")
        folder.mkdir(parents=True, exist_ok=True)
        for number in pyplot.get_fignums():
            name = f"{Path(self.env.docname).name}-{self.lineno}-{number}.svg"
            pyplot.figure(number).savefig(folder / name)
            up = "../" * self.env.docname.count("/")
            alt = "The plot that the code above draws"
            shown.append(
                nodes.raw("", f'<p><img class="plot" src="{up}_images/{name}" alt="{alt}"></p>', format="html")
            )
        pyplot.close("all")
        return shown


def plain_docstring(
    app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:  # Sphinx calls it with these
    """Docstrings are plain text with `code`: an indented block is shown as it is, and no character is markup."""
    end = lines.index("Parameters") if "Parameters" in lines else len(lines)
    shown: list[str] = []
    indented = False
    for line in lines[:end]:
        if line.strip() and line.startswith(" ") != indented:
            indented = not indented
            shown += ["", "::", ""] if indented else [""]
        shown.append(line if indented else escaped(line))
    lines[:end] = [*shown, ""]


def escaped(line: str) -> str:
    parts = line.split("`")
    if len(parts) % 2 == 0:  # a name in backticks that goes on in the next line
        return re.sub(r"([*|_`\\])", r"\\\1", line)
    return "`".join(part if place % 2 else re.sub(r"([*|_\\])", r"\\\1", part) for place, part in enumerate(parts))


def redirect_from_the_root(app: Any, error: Exception | None) -> None:
    if error is None and app.builder.name == "html":
        Path(app.outdir, "index.html").write_text(REDIRECT.format(page=f"{app.config.root_doc}.html"))


def setup(app: Any) -> None:
    app.add_directive("mermaid", Mermaid)
    app.add_directive("code-cell", CodeCell)
    app.connect("autodoc-process-docstring", plain_docstring, priority=100)  # before napoleon
    app.connect("build-finished", redirect_from_the_root)
