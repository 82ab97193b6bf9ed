"""A built-in policy whose tasks are its training and its rollouts → roles with these programs. Pure.

ModelArts' template for reinforcement learning names no roles. Here the task that is called rollout makes the
completions, and the other one trains.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from app.compat.modelarts.tasks import devices_of, environment_of
from app.domain.errors import BadSpec
from app.domain.scheduling.resources import NodeCapacity
from app.domain.spec.hyperparameters.rlhf import ENGINE, GENERATION_BACKEND
from app.domain.spec.roles import ROLLOUT, TRAIN


def with_engine(algorithm: Mapping[str, Any]) -> dict[str, Any]:
    """The algorithm with the backend of rollouts, unless it names one."""
    given = algorithm.get("parameters") or []
    if any(each["name"] == GENERATION_BACKEND for each in given):
        return dict(algorithm)
    return {**algorithm, "parameters": [*given, {"name": GENERATION_BACKEND, "value": ENGINE}]}


def pair_of(
    tasks: Sequence[Mapping[str, Any]], default: Mapping[str, Any], capacities: Sequence[NodeCapacity]
) -> list[dict[str, Any]]:
    """The role that trains first. Raises BadSpec."""
    found = [_role(number, task, default, capacities) for number, task in enumerate(tasks)]
    if [role["program"] for role in found].count(ROLLOUT) != 1 or len(found) != len((TRAIN, ROLLOUT)):
        raise BadSpec(
            f"a built-in method has two tasks, its training and its rollouts: call one of them {ROLLOUT}, and leave "
            "others out; or leave id out, and name a boot_file for each task",
            field="tasks",
        )
    return sorted(found, key=lambda role: role["program"] == ROLLOUT)


def _role(
    number: int, task: Mapping[str, Any], default: Mapping[str, Any], capacities: Sequence[NodeCapacity]
) -> dict[str, Any]:
    for name, value in task["algorithm"].items():
        if name != "environments" and value:
            raise BadSpec(
                "has no place in a built-in method, whose tasks run its own programs; leave it out, or algorithm.id",
                field=f"tasks.{number}.algorithm.{name}",
            )
    role, count = task["role"].lower(), (task.get("task_resource") or {}).get("node_count", 1)
    program = ROLLOUT if role.startswith(ROLLOUT) else TRAIN
    environment = environment_of(task["algorithm"])
    return {
        "role": role,
        "program": program,
        "count": count,
        "resource_config": devices_of(number, task, default, capacities),
        **({"training_config": {"environment": environment}} if environment else {}),
    }
