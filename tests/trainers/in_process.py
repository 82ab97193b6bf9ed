"""Runs of built-in trainers that share one group of processes, and what came out of each (see `exact_runs`)."""

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file, save_file

from app.domain.spec.hyperparameters.parsing import parse
from app.domain.spec.hyperparameters.rlhf import REWARD_METHOD, method_of
from tests.systems.once import once
from tests.trainers.forked import Process, rank_environment, start_rank
from tests.trainers.supervision import free_port, wait_for_all

# A test's property: the name of the runs that it checks, which other tests may share, and how many seconds they took.
RAN = "ran"
# The model that `make_assets` leaves.
SMALL = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
# Files and the splits of them.
_PAIRS = (("train.jsonl", "validation.jsonl"), ("train", "validation"))
_PARTS = ("train[:60]", "validation[60:72]")
_PREFERENCES = (("preferences.jsonl", "preferences.jsonl"), _PARTS)
_DATA = {
    "CONTINUED_PRETRAIN": (("text.jsonl", "text.jsonl"), _PARTS),
    "DPO": _PREFERENCES,
    REWARD_METHOD: _PREFERENCES,
    "RLHF": (("train.jsonl", "train.jsonl"), ("train[:13]", "validation[50:55]")),
}


@dataclass
class Outcome:
    """How one run went; `error` is "TYPE: message" of one that failed."""

    result: dict[str, Any]
    error: str | None
    seconds: float
    values: dict[str, dict[str, float]]
    progress_made: list[list[int]]
    phases: list[str]
    checkpoints: list[str]
    notes: list[dict[str, Any]]
    pauses_failed: list[str]
    reached_when_saved: dict[str, int]

    def series(self, name: str) -> dict[int, float]:
        """One metric by step."""
        return {int(step): value for step, value in self.values.get(name, {}).items()}

    @property
    def output(self) -> Path:
        return Path(self.result["output"])

    def weights(self) -> str:
        """A digest of the finished model's weights."""
        files = b"".join((self.output / name).read_bytes() for name in self.result["weight_files"])
        return hashlib.sha256(files).hexdigest()


def make_assets(directory: Path, demo: Path) -> Path:
    """A smaller cut of the demo's model with dropout, as only then random numbers matter, and a few of its records."""
    shutil.copytree(demo, directory)
    _cut_down(directory / "model")
    for name, count in (("train", 60), ("chat", 60), ("validation", 12)):
        file = directory / f"{name}.jsonl"
        file.write_text("".join(file.read_text().splitlines(keepends=True)[:count]))
    return directory


def _cut_down(model: Path) -> None:
    """To half the layers and a quarter of their size or less, which take half as long."""
    config = json.loads((model / "config.json").read_text())
    wide, inner = config["hidden_size"], config["intermediate_size"]
    config |= {
        "attention_dropout": 0.1,
        "hidden_size": SMALL["hidden_size"],
        "head_dim": SMALL["hidden_size"] // config["num_attention_heads"],
        "intermediate_size": SMALL["intermediate_size"],
        "num_hidden_layers": SMALL["num_hidden_layers"],
    }
    (model / "config.json").write_text(json.dumps(config))
    sizes = {wide: SMALL["hidden_size"], inner: SMALL["intermediate_size"]}
    gone = tuple(f"model.layers.{layer}." for layer in range(SMALL["num_hidden_layers"], 100))
    weights = {
        name: tensor[tuple(slice(sizes.get(size, size)) for size in tensor.shape)].copy()
        for name, tensor in load_file(model / "model.safetensors").items()
        if not name.startswith(gone)
    }
    save_file(weights, model / "model.safetensors", metadata={"format": "pt"})


def plan_of(
    run_dir: Path,
    assets: Path,
    training_type: str,
    hyperparameters: Mapping[str, str],
    *,
    world_size: int = 1,
    **changes: Any,
) -> dict[str, Any]:
    """A small run: some 8 steps of 8 records make an epoch, which ends in an evaluation."""
    files, splits = _DATA.get(method_of(training_type, hyperparameters), _PAIRS)
    data = {
        "batch_size": 4 // world_size,
        "gradient_accumulation_steps": 2,
        "max_seq_length": 48,
        "sources": [{"split": split} for split in splits],
        **changes.pop("data_config", {}),
    }
    given = {"learning_rate": "5e-3", **hyperparameters}
    framework = changes.get("framework", "HF_TRAINER")
    spec = {
        "run_dir": str(run_dir),
        "framework": framework,
        "training_type": training_type,
        "training_config": {"evaluation": {"strategy": "epoch"}},
        "output_config": {"checkpoint": {"save_steps": 100}},
        "hyperparameters": parse(framework, training_type, given),
        "model_path": str(assets / "model"),
        "data_paths": [str(assets / name) for name in files],
        "device_type": "cpu",
        "world_size": world_size,
        "threads_per_rank": 1,
        **changes,
        "data_config": data,
    }
    return {"spec": spec}


def runs(
    directory: Path, plans: Mapping[str, Any], *, world_size: int = 1, timeout_seconds: float = 300, cold: bool = False
) -> dict[str, Outcome]:
    """Make the runs in their order; what each gave, by name. Of `cold` ones each process imports what it needs."""
    path = directory / "plan.json"
    path.write_text(json.dumps(plans))
    port = free_port()
    processes = [_start(path, plans, rank, world_size, port, cold=cold) for rank in range(world_size)]
    exit_codes = wait_for_all(processes, timeout_seconds)
    logs = "\n".join((directory / f"rank-{rank}.log").read_text()[-4000:] for rank in range(world_size))
    assert exit_codes == [0] * world_size, logs
    return _outcomes(directory)


def shared_runs(directory: Path, plans: Mapping[str, Any], *, world_size: int = 1) -> dict[str, Outcome]:
    """As `runs`, made by one of the processes of pytest that share the directory; the plans are the same in all."""

    def make(made: Path) -> None:
        made.mkdir(parents=True)
        runs(made, plans, world_size=world_size)

    return _outcomes(once(directory, make))


def _outcomes(directory: Path) -> dict[str, Outcome]:
    found = json.loads((directory / "plan.outcomes").read_text())
    return {name: Outcome(**{"result": {}, **outcome}) for name, outcome in found.items()}


def rows_of(plan: Mapping[str, Any]) -> dict[int, list[str]]:
    """Which records a run with `records_rows` took for each step, in the order of its sampler.

    That deals out batches to the ranks in turn.
    """
    batches: dict[int, list[list[list[str]]]] = {}
    paths = sorted(Path(plan["spec"]["run_dir"]).glob("rows-*.jsonl"))
    for rank, path in enumerate(paths):
        for line in map(json.loads, path.read_text().splitlines()):
            batches.setdefault(line["step"], [[] for _ in paths])[rank].append(line["rows"])
    return {
        step: [row for turn in zip(*of_ranks, strict=True) for batch in turn for row in batch]
        for step, of_ranks in batches.items()
    }


def _start(path: Path, plans: Mapping[str, Any], rank: int, world_size: int, port: int, *, cold: bool) -> Process:
    return start_rank(
        ["tests.trainers.exact_runs", str(path)],
        [plan["spec"] for plan in plans.values()],
        environment=rank_environment(rank, world_size, port),
        cwd=path.parent,
        log=path.parent / f"rank-{rank}.log",
        cold=cold,
    )
