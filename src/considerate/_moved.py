"""Module names of earlier releases, which still import the renamed modules, with a DeprecationWarning."""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

MOVED = {
    "considerate.backends": "considerate.distributed.backends",
    "considerate.backends.local": "considerate.kernels.threads",
    "considerate.backends.out_of_core": "considerate.distributed.backends.out_of_core",
    "considerate.backends.ray": "considerate.distributed.backends.ray",
    "considerate.degrees": "considerate.simulation.degrees",
    "considerate.division": "considerate.distributed.division",
    "considerate.graph": "considerate.data.graph",
    "considerate.interactions": "considerate.data",
    "considerate.parameters": "considerate.inference.plan",
    "considerate.peers": "considerate.study.peers",
    "considerate.simulate": "considerate.simulation.simulate",
}


class MovedModules:
    """Importer of modules under their old names. It has the methods of importlib.abc, which is slow to import."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname in MOVED else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        old = module.__name__
        new = MOVED[old]
        warnings.warn(f"{old} is now {new}; the old name goes in release 0.6.", DeprecationWarning, stacklevel=2)
        sys.modules[old] = import_module(new)  # importlib returns this in place of `module`
