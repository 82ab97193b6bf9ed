"""Rollouts as processes of their own, and what trainings that ask them have in common."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.systems.system import wait_for
from tests.trainers.forked import Process, rank_environment, start_rank
from tests.trainers.supervision import free_port

STEPS = 4
PATTERN = "regex:[aeiou]{2}"
# As PATTERN, and with its second call the rollout hangs.
HANGING = """
import os, re, signal
from pathlib import Path
def reward(prompts, completions, **columns):
    if os.environ.get("RANK", "0") == "0":
        calls = Path(os.environ["ROLLOUT_PID"] + ".calls")
        calls.write_text(calls.read_text() + "x" if calls.exists() else "x")
        if calls.read_text() == "xx":
            os.kill(int(Path(os.environ["ROLLOUT_PID"]).read_text()), signal.SIGSTOP)
    return [float(re.search("[aeiou]{2}", text) is not None) for text in completions]
"""
SECRET = "s" * 32
COMMON = {"max_steps": str(STEPS), "num_generations": "4", "max_completion_length": "8", "reward": PATTERN, "beta": "0"}
ENGINE = {"generation_backend": "engine"}
# In the step after which HANGING lets the rollout hang, before its completions.
PAUSE = {"type": "pause", "save_checkpoint": True}
PAUSES: dict[str, Any] = {"commands_before_completions": {3: PAUSE}}


class Rollouts:
    """Processes of a role for one training."""

    def __init__(self, directory: Path, plan: dict[str, Any], instances: int) -> None:
        directory.mkdir()
        self.directory = directory
        self._spec = plan["spec"]
        (directory / "spec.json").write_text(json.dumps(self._spec))
        ports = [free_port() for _ in range(instances)]
        places = [{"index": index, "address": "127.0.0.1", "port": port} for index, port in enumerate(ports)]
        self.shared = {"TRAINYARD_TASKS": json.dumps({"gen": places}), "TRAINYARD_JOB_SECRET": SECRET}
        self.processes: list[Process] = [self.start(index) for index in range(instances)]

    def start(self, index: int) -> Process:
        own = {"TRAINYARD_ROLE": "gen", "TRAINYARD_TASK_INDEX": str(index)}
        return start_rank(
            ["workers.trainers.rollouts.main", "--spec", str(self.directory / "spec.json")],
            [self._spec],
            environment={**rank_environment(0, 1, 0), **self.shared, **own},
            cwd=self.directory,
            log=self.log(index),
        )

    def log(self, index: int) -> Path:
        return self.directory / f"rollout-{index}.log"

    def hang(self, plan: dict[str, Any]) -> None:
        """Give the plan what its HANGING reward needs: who stops, after the second step."""
        file = self.directory / "pid"
        file.write_text(str(self.processes[0].pid))
        plan["environment"]["ROLLOUT_PID"] = str(file)

    def continue_after(self, checkpoint: Path) -> None:
        """Let it answer once the training has saved meanwhile."""
        wait_for(checkpoint.exists, seconds=240, what="the checkpoint")
        os.kill(self.processes[0].pid, signal.SIGCONT)

    def kill_after(self, steps: Path) -> None:
        """Kill one in the middle of the training, and start it again."""
        wait_for(lambda: steps.exists() and len(steps.read_text()) >= 2, seconds=240, what="the second step")
        self.processes[0].kill()
        self.processes[0].wait(10)
        self.processes[0] = self.start(0)


@contextmanager
def serving(directory: Path, plan: dict[str, Any], instances: int) -> Iterator[Rollouts]:
    """Rollouts of a plan, whose run then asks them."""
    found = Rollouts(directory, plan, instances)
    plan["environment"] = {**found.shared, "TRAINYARD_ROLLOUT_ROLE": "gen"}
    try:
        yield found
    finally:
        for each in found.processes:
            each.kill()
            each.wait(10)


def merged(*changes: dict[str, str]) -> dict[str, str]:
    return {name: value for each in (COMMON, *changes) for name, value in each.items()}
