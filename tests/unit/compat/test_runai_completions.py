"""A Run:ai training whose command is to succeed several times: one run after the other, side by side, or as copies."""

import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from app.compat.runai.from_native import training_of, workload_of
from app.domain.errors import BadSpec
from tests.unit.compat.test_runai import OWNER, details_of, ignored_fields, translated

NOTES = 'echo "$JOB_COMPLETION_INDEX $1"; [ "$JOB_COMPLETION_INDEX" != "$2" ] || exit 7'
# Each run waits until another one is there, too: alone, none of them ends.
MEETS = """
touch "$1/$JOB_COMPLETION_INDEX"
while [ ! -e "$1/$((JOB_COMPLETION_INDEX ^ 1))" ]; do sleep 0.01; done
"""


HALF = {"gpuDevicesRequest": 1, "gpuRequestType": "portion", "gpuPortionRequest": 0.5}


def ended(script: Path, args: str, **spec: int) -> tuple[int, list[str]]:
    """Of runs that share a part of a device, where they are side by side."""
    native = translated({"command": shlex.join(["bash", str(script)]), "args": args, "compute": HALF, **spec})
    shared = ["spec.parallelism"] if min(spec.get("completions", 1), spec.get("parallelism", 1)) > 1 else []
    assert ignored_fields(native) == shared
    words = native.document["training_config"]["framework"]["custom_command"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, done.stdout.splitlines()


@pytest.fixture
def script(tmp_path: Path) -> Path:
    return tmp_path / "my run.sh"


def test_command_runs_until_enough_runs_have_succeeded(script: Path) -> None:
    script.write_text(NOTES)

    assert ended(script, "'a b' 9", completions=3) == (0, ["0 a b", "1 a b", "2 a b"])
    assert ended(script, "'a b' 1", completions=3) == (7, ["0 a b", "1 a b"])


@pytest.mark.parametrize(("completions", "parallelism"), [(4, 2), (2, 9)])
def test_runs_are_side_by_side(script: Path, tmp_path: Path, completions: int, parallelism: int) -> None:
    script.write_text(MEETS)

    code, _ = ended(script, str(tmp_path), completions=completions, parallelism=parallelism)

    assert code == 0
    assert {path.name for path in tmp_path.iterdir() if path != script} == {str(n) for n in range(completions)}


def test_last_parallel_runs_may_be_fewer(script: Path) -> None:
    script.write_text(NOTES)

    code, lines = ended(script, "x 9", completions=5, parallelism=2)

    assert (code, sorted(lines)) == (0, ["0 x", "1 x", "2 x", "3 x", "4 x"])


def test_first_failure_ends_the_runs_beside_it_and_those_that_would_follow(script: Path, tmp_path: Path) -> None:
    script.write_text('[ "$JOB_COMPLETION_INDEX" = 1 ] || exit 3; exec sleep 300')

    code, _ = ended(script, str(tmp_path), completions=4, parallelism=2)

    assert code == 3


def test_without_completions_there_is_one_run(script: Path) -> None:
    script.write_text('echo "${JOB_COMPLETION_INDEX-none}"')

    assert ended(script, "x", parallelism=2) == (0, ["none"])


def copies(spec: dict[str, Any]) -> dict[str, Any]:
    """The role of a training whose completions run at a time."""
    native = translated(spec)
    assert native.warnings == []
    (role,) = native.document["tasks"]
    found: dict[str, Any] = role
    return found


def run_copy(role: dict[str, Any], index: int, output: Path) -> tuple[int, list[str]]:
    """One instance, as the agent starts it."""
    variables = {**os.environ, "TRAINYARD_TASK_INDEX": str(index), "TRAINYARD_OUTPUT_DIR": str(output)}
    words = role["training_config"]["custom_command"]
    done = subprocess.run(words, env=variables, capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, done.stdout.splitlines()


def test_copies_have_devices_and_a_world_of_their_own() -> None:
    compute = {"gpuDevicesRequest": 2, "cpuCoreRequest": 3}
    native = translated({"completions": 5, "parallelism": 3, "compute": compute})

    (role,) = native.document["tasks"]
    assert (role["role"], role["count"], role["world"], role["restart"]) == ("copy", 3, "instance", "task")
    assert role["resource_config"] == {"gpu_count": 2, "cpu_cores": 3}
    assert role["training_config"]["config"] == {"num_proc_per_node": "1"}
    assert native.document["resource_config"] == {}
    details = details_of(native)
    assert training_of(details, OWNER)["spec"]["parallelism"] == 3
    row = workload_of(details, OWNER)
    assert (row["type"], row["requestedPods"], row["runningPods"]) == ("Training", {"number": 3}, 0)


def test_each_completion_runs_in_one_copy(script: Path, tmp_path: Path) -> None:
    script.write_text(NOTES)
    role = copies({"command": shlex.join(["bash", str(script)]), "args": "'a b' 9", "completions": 5, "parallelism": 2})

    assert [run_copy(role, index, tmp_path) for index in range(2)] == [
        (0, ["0 a b", "2 a b", "4 a b"]),
        (0, ["1 a b", "3 a b"]),
    ]
    assert list(tmp_path.iterdir()) == [script]


def test_copy_that_starts_again_goes_on_after_what_has_succeeded(script: Path, tmp_path: Path) -> None:
    script.write_text(NOTES)
    role = copies({"command": shlex.join(["bash", str(script)]), "args": "x 2", "completions": 6, "parallelism": 2})

    assert run_copy(role, 0, tmp_path) == (7, ["0 x", "2 x"])
    assert run_copy(role, 1, tmp_path) == (0, ["1 x", "3 x", "5 x"])
    script.write_text('echo "$JOB_COMPLETION_INDEX again"')
    assert run_copy(role, 0, tmp_path) == (0, ["2 again", "4 again"])


def test_more_copies_than_a_job_can_have_are_refused() -> None:
    with pytest.raises(BadSpec, match="set it to 64") as refused:
        translated({"completions": 100, "parallelism": 65})

    assert refused.value.field == "spec.parallelism"
    assert copies({"completions": 64, "parallelism": 9999})["count"] == 64


def test_limits_are_those_of_all_copies_together() -> None:
    compute = {"cpuCoreLimit": 0.5, "cpuMemoryLimit": "30Mi"}
    native = translated({"completions": 4, "parallelism": 4, "compute": compute})

    assert native.document["resource_config"]["limits"] == {"cpu_cores": 2.0, "ram_mb": 120, "required": False}
    assert ignored_fields(native) == ["spec.compute.cpuCoreLimit", "spec.compute.cpuMemoryLimit"]
