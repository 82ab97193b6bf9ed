"""The small runs by which a trainer shows that it does what every trainer owes: all in one group of processes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from app.domain.spec.hyperparameters.rlhf import ALGORITHM, REWARD_METHOD, REWARD_MODELLING
from tests.trainers.in_process import Outcome, plan_of, shared_runs

Pair = tuple[str, str]

STEPS = 4  # less than an epoch
EVERY = 2  # steps between evaluations
STOP = 2  # after this step runs are stopped, in the midst of the schedule, when an evaluation is due
UNSUPPORTED = "no_such_option"

# Frameworks that divide a model show it on two ranks.
_RANKS = {"HF_TRAINER": 1}
_DIVIDING_RANKS = 2
OPTIONS = {"DEEPSPEED": {"zero_stage": "2"}, "MEGATRON": {"tensor_parallel": "2"}}
# What a method can't do without.
_NEEDED: dict[str, dict[str, str]] = {
    "RLHF": {"reward": "regex:[aeiou]{2}", "num_generations": "4", "max_completion_length": "9"},
    REWARD_METHOD: {ALGORITHM: REWARD_MODELLING},
}
_PAUSE = {"type": "pause", "save_checkpoint": True, "number": 1}
# Each run, and what happens to it (see `exact_runs`); `model_kwargs` are a part of its document.
_RUNS: dict[str, dict[str, Any]] = {
    "whole": {},
    "asked": {"commands": {1: {"type": "checkpoint"}}},
    "paused": {"stop_at": STOP},
    "resumed": {"resume_from": "paused"},
    "cancelled": {"commands": {STOP: {"type": "cancel"}}},
    "disk full": {"commands": {STOP: _PAUSE}, "unwritten": [STOP]},
    "unsupported": {"fails": True, "model_kwargs": {UNSUPPORTED: 1}},
}


def training_type_of(method: str) -> str:
    """What a document says of it; as `rlhf.method_of`, the other way round."""
    return "RLHF" if method == REWARD_METHOD else method


def ranks_of(framework: str) -> int:
    """How many a pair of it runs with."""
    return _RANKS.get(framework, _DIVIDING_RANKS)


def small_runs(directory: Path, assets: Path, pair: Pair, *, trainer: str) -> dict[str, Outcome]:
    """What came of each run of `_RUNS`; `trainer` is what the registry says of the pair."""
    world_size = ranks_of(pair[0])
    plans = {
        name: _plan(directory / name, assets, pair, world_size, events) | {"trainer": trainer}
        for name, events in _RUNS.items()
    }
    return shared_runs(directory, plans, world_size=world_size)


def _plan(run_dir: Path, assets: Path, pair: Pair, world_size: int, events: Mapping[str, Any]) -> dict[str, Any]:
    framework, method = pair
    training = {
        "base_model": {"model_kwargs": events.get("model_kwargs", {})},
        "framework": {"config": OPTIONS.get(framework, {})},
        "evaluation": {"strategy": "steps", "steps": EVERY},
    }
    values = {"max_steps": str(STEPS), "warmup_steps": "2", **_NEEDED.get(method, {})}
    plan = plan_of(
        run_dir,
        assets,
        training_type_of(method),
        values,
        world_size=world_size,
        framework=framework,
        training_config=training,
    )
    return {**plan, **events}
