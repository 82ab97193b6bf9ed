"""Forked processes are what cold ones are: the same bits of trainings, exit codes, environments and ends."""

import os
import signal
import subprocess

import pytest

from app.domain.spec.frameworks.megatron import MEGATRON
from tests.conformance.small_runs import OPTIONS, ranks_of
from tests.trainers.forked import ForkedProcess, rank_environment, start_rank
from tests.trainers.in_process import Outcome, plan_of, runs
from tests.trainers.supervision import ROOT

TIMED = {"step_seconds", "samples_per_second", "tokens_per_second", "rank_memory_mb_max"}
OF_RANKS = {"slowest_rank", "slowest_rank_seconds", "fastest_rank_seconds"}
SPEC = {"device_type": "cpu", "training_type": "SFT", "framework": "HF_TRAINER"}


def start(tmp_path, end="sys.exit()", *, spec=SPEC, **environment):
    """A program that prints its rank, home, directory and arguments, and then runs ``end``."""
    arguments = ["tests.scripts.executes_argument", end]
    return start_rank(
        arguments, [spec], environment=rank_environment(5, 6, 0, **environment), cwd=tmp_path, log=tmp_path / "log"
    )


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("sys.exit()", 0),
        ("sys.exit(7)", 7),
        ("sys.exit('no')", 1),
        ("1 / 0", 1),
        ("os._exit(3)", 3),
        ("os.kill(os.getpid(), 15)", -signal.SIGTERM),
    ],
)
def test_exit_code_is_that_of_any_process(tmp_path, end, code):
    process = start(tmp_path, f"print(end='', flush=True); {end}")

    assert isinstance(process, ForkedProcess)
    assert process.wait(60) == process.poll() == process.returncode == code
    executes_argument = ROOT / "tests" / "scripts" / "executes_argument.py"
    said, *errors = (tmp_path / "log").read_text().splitlines()
    assert said == f"5 {os.environ.get('HOME')} {tmp_path} {executes_argument}"
    assert (errors[-1:] == ["ZeroDivisionError: division by zero"]) == (end == "1 / 0")


def test_process_is_waited_for_and_killed(tmp_path):
    process = start(tmp_path, "import time; time.sleep(60)")

    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.1)
    assert process.poll() is None
    process.kill()
    assert process.wait(60) == -signal.SIGKILL


@pytest.mark.parametrize(
    ("environment", "spec"),
    [({"OMP_NUM_THREADS": "2"}, SPEC), ({"HF_HUB_DISABLE_XET": "1"}, SPEC), ({}, {**SPEC, "device_type": "cuda"})],
)
def test_process_that_would_import_otherwise_starts_cold(tmp_path, environment, spec):
    process = start(tmp_path, spec=spec, **environment)

    assert isinstance(process, subprocess.Popen)
    assert process.wait(60) == 0


@pytest.mark.long
def test_what_few_trainings_need_is_imported_before_theirs(tmp_path):
    imported = "print('workers.trainers.megatron.supervised' in sys.modules, flush=True)"

    process = start(tmp_path, imported, spec={**SPEC, "framework": MEGATRON})

    assert isinstance(process, ForkedProcess)
    assert process.wait(60) == 0
    assert (tmp_path / "log").read_text().splitlines()[-1] == "True"


@pytest.mark.long
@pytest.mark.parametrize("framework", ["HF_TRAINER", "FSDP", "DEEPSPEED", "MEGATRON"])
def test_trainings_give_the_same_bits(tmp_path, assets, framework):
    ranks = ranks_of(framework)
    training = {"framework": {"config": OPTIONS.get(framework, {})}, "evaluation": {"strategy": "steps", "steps": 2}}
    found: dict[str, Outcome] = {}
    for name in ("cold", "forked"):
        directory = tmp_path / name
        directory.mkdir()
        changes = {"world_size": ranks, "framework": framework, "training_config": training}
        plan = plan_of(directory / "run", assets, "SFT", {"max_steps": "4", "warmup_steps": "2"}, **changes)
        found |= runs(directory, {name: plan}, world_size=ranks, cold=name == "cold")

    cold, forked = ({k: v for k, v in each.values.items() if k not in TIMED | OF_RANKS} for each in found.values())
    assert cold == forked
    assert found["cold"].weights() == found["forked"].weights()
    assert {"loss", "eval_loss", "grad_norm"} <= cold.keys()
