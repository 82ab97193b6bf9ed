"""Completions of a GRPO training: by `generate`, by the engine in its own process, and by rollouts beside it.

    python -m benchmarks.rollouts [--rounds 3] [--threads 1]

The same training of a model with random weights, without a supervisor: what a step takes, how much of it passes until
the completions are there, and how fast the weights reach the rollouts. Each process has as many threads as the others.
The first step, in which processes warm up, does not count. One JSON line on standard output, a table on standard error.
"""

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from app.domain.spec.hyperparameters.parsing import parse
from benchmarks.machine import description
from benchmarks.overhead import Case, build
from tests.systems.servers import free_port
from trainyard._hooks.local_session import LocalSession
from trainyard.protocol.session import Identity
from workers.rank.run_context import RunContext, RunSpec

ROOT = Path(__file__).parents[1]
STEPS = 5
SIDES = {"generate": ("generate", 0), "engine": ("engine", 0), "1 rollout": ("engine", 1), "2 rollouts": ("engine", 2)}
MODEL = Case(steps=STEPS, save_steps=STEPS, batch_size=8, tokens=64, hidden=384, layers=4)
SHOWN = ("step_seconds", "generation_seconds", "weights_seconds", "weights_bytes")


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1, help="of each process")
    parser.add_argument("--train", help=argparse.SUPPRESS)  # a specification: this process is one training
    given = parser.parse_args(arguments)
    if given.train:
        return train(Path(given.train))
    folder = Path(tempfile.mkdtemp(prefix="trainyard-rollouts-"))
    try:
        build(MODEL, folder)
        found: dict[str, list[dict[str, list[float]]]] = {side: [] for side in SIDES}
        for number in range(given.rounds):
            for side, (backend, instances) in SIDES.items():
                found[side].append(measured(folder, f"{number}-{side}", backend, instances, given.threads))
    finally:
        shutil.rmtree(folder)
    sides = {side: summary(each) for side, each in found.items()}
    for side, values in sides.items():
        print(side.ljust(12), values, file=sys.stderr)
    report = {"benchmark": "rollouts", "rounds": given.rounds, "threads": given.threads, "sides": sides}
    print(json.dumps({**report, "machine": description()}))
    return None


def summary(rounds: list[dict[str, list[float]]]) -> dict[str, float]:
    """Medians over all steps but the first of each round."""
    steps = {name: [value for each in rounds for value in each.get(name, [])[1:]] for name in SHOWN}
    found = {name: round(statistics.median(values), 4) for name, values in steps.items() if values}
    if found.get("weights_seconds"):
        found["handover_mb_per_second"] = round(found["weights_bytes"] / found["weights_seconds"] / 1e6, 1)
    return found


def measured(folder: Path, name: str, backend: str, instances: int, threads: int) -> dict[str, list[float]]:
    """Metrics of one training by name, step by step."""
    directory = folder / name
    directory.mkdir()
    path = directory / "spec.json"
    path.write_text(json.dumps(specification(folder, directory, backend, threads)))
    with rollouts(directory, instances, threads) as environment:
        command = [sys.executable, "-m", "benchmarks.rollouts", "--train", str(path)]
        done = subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE)
    shutil.rmtree(directory)
    found: dict[str, list[float]] = json.loads(done.stdout.splitlines()[-1])
    return found


def specification(folder: Path, directory: Path, backend: str, threads: int) -> dict[str, Any]:
    hyperparameters = {
        "max_steps": str(STEPS),
        "num_generations": "4",
        "max_completion_length": "32",
        "beta": "0",
        "reward": "regex:[aeiou]{2}",
        "generation_backend": backend,
    }
    return {
        "run_dir": str(directory),
        "framework": "HF_TRAINER",
        "training_type": "RLHF",
        "training_config": {"evaluation": {"strategy": "no"}},
        "output_config": {"checkpoint": {"save_steps": 1000}},
        "hyperparameters": parse("HF_TRAINER", "RLHF", hyperparameters),
        "model_path": str(folder / "model"),
        "data_paths": [str(folder / "demo" / "train.jsonl")],
        "data_config": {"batch_size": 8, "max_seq_length": 160, "sources": [{"split": "train"}]},
        "device_type": "cpu",
        "threads_per_rank": threads,
    }


@contextlib.contextmanager
def rollouts(directory: Path, instances: int, threads: int) -> Iterator[dict[str, str]]:
    """The environment of a training with so many of them."""
    ranks = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
    quiet = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": str(threads)}
    environment = {**os.environ, **ranks, **quiet}
    if not instances:
        yield environment
        return
    places = [{"index": index, "address": "127.0.0.1", "port": free_port()} for index in range(instances)]
    environment |= {"TRAINYARD_TASKS": json.dumps({"rollout": places}), "TRAINYARD_JOB_SECRET": os.urandom(32).hex()}
    command = [sys.executable, "-m", "workers.trainers.rollouts.main", "--spec", str(directory / "spec.json")]
    with contextlib.ExitStack() as stack:
        for index in range(instances):
            own = {"TRAINYARD_ROLE": "rollout", "TRAINYARD_TASK_INDEX": str(index)}
            process = subprocess.Popen(command, cwd=ROOT, env=environment | own, stdout=subprocess.DEVNULL)
            stack.callback(process.wait)
            stack.callback(process.terminate)
        yield {**environment, "TRAINYARD_ROLLOUT_ROLE": "rollout"}


class _Kept(LocalSession):
    """Keeps the metrics instead of printing them."""

    def __init__(self, identity: Identity) -> None:
        super().__init__(identity)
        self.values: dict[str, list[float]] = {}

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        del step
        for name, value in values.items():
            self.values.setdefault(name, []).append(value)


def train(path: Path) -> None:
    """One training in this process; its metrics as one line of JSON."""
    # Only here: the process that compares has no use for torch.
    from workers.trainers import distributed, hidden_packages, registry  # noqa: PLC0415

    spec = RunSpec.read(path)
    hidden_packages.leave_out([spec.framework], [])
    trainer = registry.load(spec.framework, spec.training_type)
    distributed.join(spec)
    session = _Kept(Identity.of(spec, rank=0))
    context = RunContext(spec, session)
    context.finish(trainer(context).run())
    print(json.dumps({name: session.values[name] for name in SHOWN if name in session.values}))


if __name__ == "__main__":
    main(sys.argv[1:])
