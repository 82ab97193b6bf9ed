"""The whole system for tests of several folders, and the jobs they submit."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.systems.system import System

S = TypeVar("S", bound=System)
SCRIPTS = Path(__file__).parents[1] / "scripts"


@pytest.fixture
def make_system(tmp_path: Path) -> Iterator[Callable[..., System]]:
    """Builds installations that are ended with the test, however it ends."""
    systems: list[System] = []

    def make(**settings: str) -> System:
        systems.append(with_inputs(System(tmp_path / f"system{len(systems)}", **settings)))
        return systems[-1]

    yield make
    for system in systems:
        system.stop()


@contextmanager
def running_system(folder: Path, owned_pids: set[int], *nodes: str, **settings: str) -> Iterator[System]:
    """One for tests that leave it as it was: no part killed, no job left."""
    system = with_inputs(System(folder, **settings))
    try:
        system.start(*nodes)
        names = ("api", "coordinator", *(f"node-{node}" for node in nodes))
        owned_pids.update({system.redis.pid, *map(system.pid, names)})
        yield system
    finally:
        system.stop()


def with_inputs(system: S) -> S:
    """The scripts of the tests, a record and a model's configuration, where jobs may read."""
    for script in SCRIPTS.glob("*.py"):
        shutil.copy(script, system.inputs)
    (system.inputs / "data.jsonl").write_text('{"text": "a line"}\n')
    (system.inputs / "model").mkdir()
    (system.inputs / "model" / "config.json").write_text("{}")
    return system


def counting_job(*, steps: int = 40, step_seconds: float = 0.05, ranks: int = 1, **changes: Any) -> dict[str, Any]:
    """A document for the counting script; ``changes`` replace whole sections."""
    return {
        "name": "count",
        "training_config": {
            "training_type": "SFT",
            "base_model": {"model_id": "model"},
            "framework": {"type": "CUSTOM", "custom_script_path": "count.py"},
            "hyperparameters": {"steps": str(steps), "step_seconds": str(step_seconds)},
        },
        "data_config": {"sources": [{"path": "data.jsonl", "format": "jsonl"}]},
        "resource_config": {"gpu_count": ranks, "device_type": "cpu"},
        **changes,
    }


def steps_said(lines: list[str]) -> list[tuple[int, int]]:
    """(step, monotonic nanoseconds) in the order the script said them."""
    words = [line.split() for line in lines if line.startswith("step ")]
    return [(int(w[1]), int(w[3])) for w in words]
