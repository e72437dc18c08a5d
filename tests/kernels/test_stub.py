"""The stub of the compiled kernels: the names, arguments and types of the module itself."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from considerate.kernels import compiled, threads

STUB = ast.parse((Path(threads.__file__).parent / "compiled.pyi").read_text())
ARRAYS = {"float32": "Floats", "float64": "Doubles", "int32": "Ints", "int64": "Longs", "bool": "NDArray[np.bool_]"}


def functions(body: list[ast.stmt], prefix: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in body:
        if isinstance(node, ast.FunctionDef):
            yield prefix + node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from functions(node.body, f"{node.name}.")


def as_in_stub(array: re.Match[str]) -> str:
    dtype = re.match(r"dtype=(\w+)", array[1])
    return "AnyArray" if dtype is None else ARRAYS.get(dtype[1], f"NDArray[np.{dtype[1]}]")


def signature(name: str) -> ast.FunctionDef:
    """Signature of a function of the module, with the stub's names for types."""
    found: Any = compiled
    for part in name.split("."):
        found = getattr(found, part)
    (text, *_) = found.__nb_signature__[0]
    text = re.sub(r"ndarray\[([^\]]*)\]", as_in_stub, text).replace("considerate.kernels.compiled.", "")
    node = ast.parse(re.sub(r"= \\\d+", "= ...", text) + ": ...").body[0]
    assert isinstance(node, ast.FunctionDef)
    return node


def described(node: ast.FunctionDef) -> list[tuple[str, str, bool, bool]]:
    """(name, type, by keyword alone, has a default) of each argument that has a type."""
    some = node.args
    defaults = [*[None] * (len(some.args) - len(some.defaults)), *some.defaults, *some.kw_defaults]
    every = zip([*some.args, *some.kwonlyargs], defaults)
    return [
        (arg.arg, ast.unparse(arg.annotation), arg in some.kwonlyargs, default is not None)
        for arg, default in every
        if arg.annotation is not None
    ]


FUNCTIONS = dict(functions(STUB.body))


def test_the_stub_has_the_names_of_the_module() -> None:
    own = {node.name for node in STUB.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    assert own == {name for name in dir(compiled) if not name.startswith("_")}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_stub_has_the_arguments_of_the_module(name: str) -> None:
    mine, real = described(FUNCTIONS[name]), described(signature(name))
    for i, (argument, kind, *rest) in enumerate(real):
        if "AnyArray" in kind:  # of one type or another, which the module tells at run time
            real[i] = (argument, mine[i][1], *rest)
    assert mine == real
