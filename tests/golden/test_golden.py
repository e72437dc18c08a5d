"""The bits of release 0.4: some fits and a model's answers, on every instruction set."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from typing import Any

import pytest

from considerate.kernels import compiled
from tests.helpers.paths import GOLDEN

RECORDED: dict[str, dict[str, dict[str, str]]] = json.loads((GOLDEN / "release-0.4.json").read_text())
SETS = compiled.instruction_sets()
ON_RAY = ("Ray by users", "Ray by items", "Ray, light items")


def computed(which: str) -> Any:
    command = [sys.executable, "-W", "ignore", str(GOLDEN / "digests.py"), which]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def plain() -> Any:
    return computed("plain")


@pytest.fixture(scope="module")
def on_ray() -> Any:
    pytest.importorskip("ray")
    return computed("ray")


def check(found: Any, name: str, fit: str) -> None:
    if name not in SETS:
        pytest.skip(f"this machine does not run the {name} kernels; it has {', '.join(SETS)}")
    if platform.system() != "Linux":
        pytest.skip("the digests are those of Linux; NumPy's logarithms are others elsewhere")
    assert found[name][fit] == RECORDED[name][fit]


@pytest.mark.parametrize("name", RECORDED)
@pytest.mark.parametrize("fit", [fit for fit in RECORDED["baseline"] if fit not in ON_RAY])
def test_the_bits_of_a_fit_are_those_that_were_recorded(plain: Any, name: str, fit: str) -> None:
    check(plain, name, fit)


@pytest.mark.parametrize("name", RECORDED)
@pytest.mark.parametrize("fit", ON_RAY)
def test_the_bits_of_a_fit_on_ray(on_ray: Any, name: str, fit: str) -> None:
    check(on_ray, name, fit)


def test_a_fit_out_of_core_or_resumed_has_the_bits_of_the_plain_one() -> None:
    for fits in RECORDED.values():
        assert fits["resumed"] == fits["user biases"] == fits["out of core"]
        assert fits["light items"] == fits["light items, out of core"] == fits["Ray, light items"]


def test_the_digests_tell_fits_apart() -> None:
    """Fits of other settings have other digests; kernels that fuse multiplication and addition round in another way."""
    same = ("resumed", "out of core", "light items, out of core", "Ray, light items")
    different = [fit for fit in RECORDED["baseline"] if fit not in same and "answers" not in fit]
    users = [RECORDED[name][fit]["users"] for name in ("avx2", "baseline") for fit in different]
    assert len(set(users)) == len(users)
