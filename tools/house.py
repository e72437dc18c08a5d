"""Measure how the package is built: rooms, imports between them, frames to the kernel, signatures, names, lines.

    python tools/house.py                 this tree
    python tools/house.py OLD NEW         two trees side by side; each is a folder that holds `considerate`
    python tools/house.py --frames        how deep each compiled function is called, and the calls to the deepest
    python tools/house.py --features      the files that name each of some features, in Python and in C++
    python tools/house.py --draw          the rooms and their imports, into docs/architecture.md

A room is a folder or a file at the top level of the package. Imports are read from the source, also those for types
and those inside functions; levels are the rooms on the longest chain of imports. Frames are counted at run time: the
program fits a small graph with one thread, every compiled function is wrapped, and the wrapper counts the functions of
the package on the stack, where it is deepest (no comprehensions: later Pythons inline them). A tree whose compiled core
is neither beside its sources nor installed in place is not traced. How many ways orchestrate a fit is seen by reading.
"""

from __future__ import annotations

import ast
import json
import os
import re
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
MANY = 8  # parameters of a signature that wants an object
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Tree:
    """The sources of one package."""

    package: Path

    @classmethod
    def at(cls, folder: str | Path) -> Tree:
        path = Path(folder).resolve()
        package = next((p for p in (path, path / "considerate", path / "src" / "considerate") if is_package(p)), None)
        if package is None:
            raise SystemExit(f"house: {folder} holds no package considerate; give the folder that it is in.")
        return cls(package)

    @cache  # noqa: B019 - a tree is read once
    def modules(self) -> dict[Path, ast.Module]:
        return {path: ast.parse(path.read_text()) for path in sorted(self.package.rglob("*.py"))}

    def nodes(self, kind: Any) -> Iterator[Any]:
        return (node for module in self.modules().values() for node in ast.walk(module) if isinstance(node, kind))

    def room(self, path: Path) -> str:
        return path.relative_to(self.package).parts[0].removesuffix(".py")

    def rooms(self) -> list[str]:
        return sorted({self.room(path) for path in self.modules()})

    def imports(self) -> dict[str, set[str]]:
        """Room -> the other rooms that it imports."""
        rooms: dict[str, set[str]] = {room: set() for room in self.rooms()}
        for path, module in self.modules().items():
            rooms[self.room(path)] |= imported_rooms(self.package, path, module) & rooms.keys() - {self.room(path)}
        return rooms


def is_package(path: Path) -> bool:
    return path.name == "considerate" and (path / "__init__.py").is_file()


def imported_rooms(package: Path, path: Path, module: ast.Module | None = None) -> set[str]:
    """The rooms that a file imports from, for types only or not."""
    inside = ["considerate", *path.relative_to(package).parts[:-1]]
    names: list[str] = []
    for node in ast.walk(module or ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = inside[: len(inside) - node.level + 1] if node.level else []
            source = ".".join(base + ([node.module] if node.module else []))
            names += [f"considerate.{alias.name}" for alias in node.names] if source == "considerate" else [source]
    return {name.split(".")[1] for name in names if name.startswith("considerate.")}


def file_imports(tree: Tree) -> dict[str, set[str]]:
    """Module -> the modules of the package that it imports, for types only or late ones included."""
    modules = {".".join(path.relative_to(tree.package.parent).with_suffix("").parts): path for path in tree.modules()}
    modules = {name.removesuffix(".__init__"): path for name, path in modules.items()}
    found = {}
    for name, path in modules.items():
        inside = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
        imported: set[str] = set()
        for node in ast.walk(tree.modules()[path]):
            if isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                base = inside[: len(inside) - node.level + 1] if node.level else []
                source = ".".join(base + ([node.module] if node.module else []))
                full = [f"{source}.{alias.name}" for alias in node.names]
                imported |= {one if one in modules else source for one in full}
        found[name] = imported & modules.keys() - {name}
    return found


def cyclic(imports: dict[str, set[str]]) -> set[str]:
    """Modules that import themselves over others."""

    def reached(start: str) -> set[str]:
        seen, waiting = set[str](), list(imports[start])
        while waiting:
            if (name := waiting.pop()) not in seen:
                seen.add(name)
                waiting += imports[name]
        return seen

    return {name for name in imports if name in reached(name)}


def levels(imports: dict[str, set[str]]) -> int:
    """Rooms on the longest chain of imports; 0 where there is a circle."""

    def depth(room: str, above: tuple[str, ...] = ()) -> int:
        if room in above:
            raise RecursionError
        if room not in known:
            known[room] = 1 + max((depth(other, (*above, room)) for other in imports[room]), default=0)
        return known[room]

    known: dict[str, int] = {}
    try:
        return max(depth(room) for room in imports)
    except RecursionError:
        return 0


def parameters(function: Function) -> int:
    given = function.args
    named = [*given.posonlyargs, *given.args, *given.kwonlyargs, *filter(None, (given.vararg, given.kwarg))]
    return len([one for one in named if one.arg not in ("self", "cls")])


def repeated_classes(tree: Tree) -> list[str]:
    """Names that more than one class has."""
    return sorted(name for name, count in Counter(node.name for node in tree.nodes(ast.ClassDef)).items() if count > 1)


# --- Frames, at run time ---

TRACED = ("fit", "recommend")


Stacks = dict[str, dict[str, list[str]]]  # command -> compiled function -> frames where its stack is deepest


def trace(tree: Tree) -> Stacks:
    """The frames from the shell to each compiled function, as `file:line function`."""
    environment = os.environ | {"PYTHONPATH": str(tree.package.parent), "COLUMNS": "100", "NO_COLOR": "1"}
    command = [sys.executable, str(Path(__file__).resolve()), "--trace", str(tree.package)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if result.returncode:
        print(f"house: {tree.package} is not traced: {result.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return {}
    return dict(json.loads(result.stdout.splitlines()[-1]))


def depth(stacks: Stacks, command: str) -> str:
    return f"{max(map(len, stacks[command].values()))}" if stacks else "not traced"


def trace_here(package: str) -> Stacks:
    """In a process of its own: run both commands on a small graph with every compiled function wrapped."""
    import tempfile

    from considerate.kernels import compiled

    stacks: dict[str, list[str]] = {}

    def wrapped(call: Any) -> Any:
        def run(*arguments: Any, **named: Any) -> Any:
            frames, frame = [], sys._getframe(1)
            while frame is not None:
                code = frame.f_code
                if code.co_filename.startswith(package + os.sep) and not code.co_name.endswith("comp>"):
                    frames.append(f"{os.path.relpath(code.co_filename, package)}:{frame.f_lineno} {code.co_qualname}")
                frame = frame.f_back  # type: ignore[assignment]
            if len(frames) > len(stacks.get(call.__name__, [])):
                stacks[call.__name__] = frames[::-1]
            return call(*arguments, **named)

        return run

    for name in dir(compiled):
        if type(getattr(compiled, name)).__name__ == "nb_func":
            setattr(compiled, name, wrapped(getattr(compiled, name)))
    import considerate

    assert considerate.__file__.startswith(package + os.sep), f"{considerate.__file__} is not in {package}"

    from considerate.cli import main

    found = {}
    with tempfile.TemporaryDirectory() as folder:
        data, model = Path(folder) / "likes.csv", Path(folder) / "model"
        data.write_text("user,item\n" + "".join(f"u{m},i{(m * k) % 23}\n" for m in range(1, 60) for k in range(1, 9)))
        commands = {
            "fit": ["fit", str(data), "--factors", "8", "--sweeps", "2", "--threads", "1", "-o", str(model)],
            "recommend": ["recommend", str(model), "u7"],
        }
        for name in TRACED:
            stacks.clear()
            sys.argv = ["considerate", *commands[name]]
            try:
                main()
            except SystemExit as end:
                if end.code:
                    raise
            found[name] = dict(stacks)
    return found


# --- The table ---


# --- Spread of a feature ---

# Names that only the code of a feature has: a file that holds one has to be touched for another such feature.
FEATURES = {
    "a setting like sharpness": ("sharpness",),
    "a setting like likelihood_weight": ("likelihood_weight", "rho"),
    "a way to draw H like half-edges": ("half-edges", "HalfEdges", "join_around"),
    "a column like low": ("low",),
    "a tensor like impossible.starts": ("impossible.starts",),
}
COLUMN_ROOMS = ("model/columns.py", "model/tables.py", "model/answers.py", "service/", "cli/recommend.py")


def names_in(node: ast.AST) -> Iterator[str]:
    """Identifiers and whole texts of a piece of code, without docstrings and prose."""
    match node:
        case ast.Name():
            yield node.id
        case ast.Attribute():
            yield node.attr
        case ast.arg() | ast.keyword():
            yield node.arg or ""
        case ast.alias():
            yield node.name
        case ast.FunctionDef() | ast.ClassDef():
            yield node.name
        case ast.Constant(value=str()):
            yield node.value


def spread(tree: Tree, names: tuple[str, ...], rooms: tuple[str, ...] = ()) -> list[str]:
    """Files of the package and of the core that name a feature in code."""
    found = []
    for path, module in tree.modules().items():
        inside = path.relative_to(tree.package).as_posix()
        if not rooms or inside.startswith(rooms):
            found += [inside] if {name for node in ast.walk(module) for name in names_in(node)} & {*names} else []
    others = [*tree.package.rglob("*.pyi"), *sorted((tree.package.parent / "core").glob("*.[hc]pp"))]
    for path in () if rooms else others:
        code = re.sub(r"//.*|\"[^\"]*\"", "", path.read_text())
        if any(re.search(rf"\b{re.escape(name)}\b", code) for name in names):
            found.append(path.name)
    return found


def where_named(tree: Tree, title: str) -> list[str]:
    """Files that name a feature of the list."""
    return spread(tree, FEATURES[title], COLUMN_ROOMS if "column" in title else ())


def measure(tree: Tree) -> dict[str, str]:
    imports = tree.imports()
    functions = list(tree.nodes(Function))
    lengths = [node.end_lineno - node.lineno + 1 for node in functions]
    files = [path for path in tree.modules() if path.parent == tree.package]
    many = [node for node in functions if parameters(node) >= MANY]
    repeated = repeated_classes(tree)
    frames = trace(tree)
    return {
        "files at the top level": f"{len(files)}",
        "rooms": f"{len(imports)}",
        "imports between rooms": f"{sum(map(len, imports.values()))}",
        "levels": f"{levels(imports) or 'a circle'}",
        "files in a cycle of imports": f"{len(cyclic(file_imports(tree)))}",
        **{
            f"frames from the shell to the kernel, {name}": f"{max(map(len, frames[name].values()))}"
            if frames
            else "not traced"
            for name in TRACED
        },
        f"signatures of {MANY} parameters and more": f"{len(many)}",
        "class names that mean two things": f"{len(repeated)}" + (f" ({', '.join(repeated)})" if repeated else ""),
        **{f"files that name {title}": f"{len(where_named(tree, title))}" for title in FEATURES},
        "functions": f"{len(functions):,}",
        "median length of a function": f"{statistics.median(lengths):g} lines",
        "lines of Python": f"{sum(len(path.read_text().splitlines()) for path in tree.modules()):,}",
    }


def table(folders: list[str]) -> str:
    trees = [Tree.at(folder) for folder in folders or [ROOT / "src"]]
    columns = [measure(tree) for tree in trees]
    titles = ["before", "after"] if len(trees) == 2 else [str(tree.package.parent) for tree in trees]
    lines = ["| | " + " | ".join(titles) + " |", "|---" * (1 + len(trees)) + "|"]
    lines += [f"| {name} | " + " | ".join(column[name] for column in columns) + " |" for name in columns[0]]
    return "\n".join(lines)


# --- The drawing ---

PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- drawn by tools/house.py: make docs -->", "<!-- end of the drawing -->"


def drawing(imports: dict[str, set[str]]) -> str:
    """A Mermaid graph of the rooms, without the arrows that follow from others, and a table of all imports."""

    @cache
    def reach(room: str) -> frozenset[str]:
        return frozenset(imports[room]).union(*(reach(other) for other in imports[room]))

    shown = {room: others for room, others in imports.items() if not room.startswith("_")}
    lines = ["```mermaid", "graph TD"]
    for room, others in sorted(shown.items()):
        needed = [other for other in sorted(others & shown.keys()) if not any(other in reach(o) for o in others)]
        lines += [f"    {room} --> {other}" for other in needed] or [f"    {room}"]
    lines += ["```", "", "| room | imports |", "|---|---|"]
    lines += [
        f"| {room} | {', '.join(sorted(others & shown.keys())) or 'nothing'} |"
        for room, others in sorted(shown.items())
    ]
    return "\n".join(lines)


def page_with(drawn: str) -> str:
    """docs/architecture.md with this drawing in it."""
    head, _, rest = PAGE.read_text().partition(BEGIN)
    return f"{head}{BEGIN}\n{drawn}\n{END}{rest.partition(END)[2]}"


def main(arguments: list[str]) -> None:
    match arguments:
        case ["--trace", package]:
            print(json.dumps(trace_here(package)))
        case ["--draw"]:
            PAGE.write_text(page_with(drawing(Tree.at(ROOT / "src").imports())))
        case ["-h"] | ["--help"]:
            print(__doc__)
        case ["--features", *folders]:
            tree = Tree.at(folders[0] if folders else ROOT / "src")
            for title in FEATURES:
                print(f"{title}: {len(files := where_named(tree, title))}", *files, sep="\n    ")
        case ["--frames", *folders]:
            for command, stacks in trace(Tree.at(folders[0] if folders else ROOT / "src")).items():
                for name in sorted(stacks, key=lambda name: len(stacks[name])):
                    print(f"{command}, {name}: {len(stacks[name])}")
                print(*(f"    {frame}" for frame in stacks[name]), sep="\n")
        case _:
            print(table(arguments))


if __name__ == "__main__":
    main(sys.argv[1:])
