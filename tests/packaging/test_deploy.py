"""The files in deploy/: as far as they can be checked without Kubernetes and SLURM."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.paths import ROOT

DEPLOY = ROOT / "deploy"


def check_fit(words: list[str]) -> None:
    """A command is one that `considerate fit` would take."""
    from typer.main import get_command

    from considerate.cli import app

    assert words[:2] == ["considerate", "fit"]
    fit = get_command(app).commands["fit"]  # type: ignore[attr-defined]
    context = fit.make_context("fit", words[2:])
    given = context.params
    assert given["resume"]
    assert given["sharded"]
    assert given["checkpoint"]
    assert given["output"]
    assert str(getattr(given["backend"], "value", given["backend"])) == "ray"
    assert given["address"] == "auto"


def kuberay() -> Any:
    yaml = pytest.importorskip("yaml")
    return yaml.safe_load((DEPLOY / "kuberay.yaml").read_text())


def test_the_rayjob_is_whole() -> None:
    job = kuberay()
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    cluster = job["spec"]["rayClusterSpec"]
    assert cluster["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    (group,) = cluster["workerGroupSpecs"]
    assert group["minReplicas"] == group["replicas"] == group["maxReplicas"]
    pods = [one["template"]["spec"]["containers"] for one in (cluster["headGroupSpec"], group)]
    assert len({container["image"] for (container,) in pods}) == 1
    for (container,) in pods:
        assert container["resources"]["requests"] == container["resources"]["limits"]
        assert {"name": "RAY_USAGE_STATS_ENABLED", "value": "0"} in container["env"]


def test_the_rayjob_runs_a_fit() -> None:
    check_fit(shlex.split(kuberay()["spec"]["entrypoint"]))


@pytest.fixture
def slurm(tmp_path: Path) -> list[str]:
    """What the script runs on all nodes, with stand-ins for SLURM."""
    if shutil.which("bash") is None:
        pytest.skip("there is no bash")
    stands = {
        "scontrol": "printf 'node01\\nnode02\\nnode03\\n'",
        "srun": 'if [[ "$*" == *hostname* ]]; then echo "fe80::1 10.1.2.3 10.1.2.4"; else printf "%s\\0" "$@"; fi',
    }
    for name, text in stands.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{text}\n")
        (tmp_path / name).chmod(0o755)
    environment = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "SLURM_JOB_NODELIST": "node[01-03]",
        "SLURM_JOB_NUM_NODES": "3",
        "SLURM_CPUS_PER_TASK": "16",
    }
    arguments = ["bash", str(DEPLOY / "slurm.sh"), "/shared/my likes", "/shared/model"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.rstrip("\0").split("\0")


def test_slurm_starts_one_ray_over_all_nodes(slurm: list[str]) -> None:
    place = slurm.index("ray")
    assert slurm[:place] == ["--nodes=3", "--ntasks=3", "--cpus-per-task=16"]
    assert slurm[place : slurm.index("--")] == [
        *("ray", "symmetric-run", "--address", "10.1.2.3:6379", "--min-nodes", "3", "--num-cpus=16")
    ]


def test_slurm_runs_a_fit(slurm: list[str]) -> None:
    command = slurm[slurm.index("--") + 1 :]
    assert "/shared/my likes" in command
    check_fit(command)


def test_the_script_asks_for_its_arguments() -> None:
    if shutil.which("bash") is None:
        pytest.skip("there is no bash")
    done = subprocess.run(["bash", str(DEPLOY / "slurm.sh")], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "the folder of Parquet files" in done.stderr


def test_the_page_names_the_files() -> None:
    page = (DEPLOY.parent / "docs" / "scaling.md").read_text()
    files = {path.name for path in DEPLOY.iterdir() if path.is_file()}
    assert set(re.findall(r"\]\(\.\./deploy/([\w.]+)\)", page)) == files
