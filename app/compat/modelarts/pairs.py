"""A built-in policy whose tasks are its training and its rollouts → roles with these programs. Pure.

ModelArts' template for reinforcement learning names no roles. Here the task that is called rollout makes the
completions, the other one without code trains, and those with a boot_file are scripts beside them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from app.compat.modelarts.tasks import devices_of, environment_of
from app.domain.errors import BadSpec
from app.domain.scheduling.resources import NodeCapacity
from app.domain.spec.hyperparameters.rlhf import ENGINE, GENERATION_BACKEND
from app.domain.spec.roles import ROLLOUT, SCRIPT, TRAIN

_PAIR = (TRAIN, ROLLOUT)
_ORDER = (*_PAIR, SCRIPT)
_OF_SCRIPTS = ("boot_file", "code_dir", "job_config", "environments")
_FILE = "file://"


def with_engine(algorithm: Mapping[str, Any]) -> dict[str, Any]:
    """The algorithm with the backend of rollouts, unless it names one."""
    given = algorithm.get("parameters") or []
    if any(each["name"] == GENERATION_BACKEND for each in given):
        return dict(algorithm)
    return {**algorithm, "parameters": [*given, {"name": GENERATION_BACKEND, "value": ENGINE}]}


def pair_of(
    tasks: Sequence[Mapping[str, Any]], default: Mapping[str, Any], capacities: Sequence[NodeCapacity]
) -> list[dict[str, Any]]:
    """The role that trains first, then its rollouts and the scripts beside them. Raises BadSpec."""
    scripts = {number for number, task in enumerate(tasks) if task["algorithm"].get("boot_file")}
    if len(tasks) - len(scripts) != len(_PAIR):
        scripts = set()  # and what they have is refused
    found = [
        {**_role(number, task, default, capacities), **(_script if number in scripts else _program)(number, task)}
        for number, task in enumerate(tasks)
    ]
    programs = [role["program"] for role in found if role["program"] != SCRIPT]
    if sorted(programs) != sorted(_PAIR):
        raise BadSpec(
            f"a built-in method has two tasks without code, its training and its rollouts: call one of them {ROLLOUT}, "
            "and give others a boot_file; or leave id out, and name a boot_file for each task",
            field="tasks",
        )
    return sorted(found, key=lambda role: _ORDER.index(role["program"]))


def _role(
    number: int, task: Mapping[str, Any], default: Mapping[str, Any], capacities: Sequence[NodeCapacity]
) -> dict[str, Any]:
    return {
        "role": task["role"].lower(),
        "count": (task.get("task_resource") or {}).get("node_count", 1),
        "resource_config": devices_of(number, task, default, capacities),
    }


def _program(number: int, task: Mapping[str, Any]) -> dict[str, Any]:
    _refuse_others(number, task, ("environments",), "has no place in a task that runs a built-in method's own program")
    environment = environment_of(task["algorithm"])
    return {
        "program": ROLLOUT if task["role"].lower().startswith(ROLLOUT) else TRAIN,
        **({"training_config": {"environment": environment}} if environment else {}),
    }


def _script(number: int, task: Mapping[str, Any]) -> dict[str, Any]:
    """Such as a server of rewards: it ends with the training, and has the directory of its script."""
    _refuse_others(number, task, _OF_SCRIPTS, "has no place in a script beside a built-in method")
    own = task["algorithm"]
    script, code = own["boot_file"], (own.get("code_dir") or "").rstrip("/")
    if not script.startswith(_FILE):
        raise BadSpec(
            f"a script beside a built-in method is a file in a directory that jobs may read, as {_FILE}/srv/judge.py",
            field=f"tasks.{number}.algorithm.boot_file",
        )
    if code and code != script.rpartition("/")[0]:
        raise BadSpec(
            "a script beside a built-in method has the directory that it lies in; leave code_dir out",
            field=f"tasks.{number}.algorithm.code_dir",
        )
    config = own.get("job_config") or {}
    for name in ("inputs", "outputs"):
        if config.get(name):
            raise BadSpec(
                "a script beside a built-in method has the data and the output of the job; leave it out",
                field=f"tasks.{number}.algorithm.job_config.{name}",
            )
    arguments = [f"--{each['name']}={each['value']}" for each in config.get("parameters") or []]
    environment = environment_of(own)
    training = {
        "custom_script_path": script.removeprefix(_FILE),
        **({"custom_arguments": arguments} if arguments else {}),
        **({"environment": environment} if environment else {}),
        "config": {"num_proc_per_node": "1"},  # a task runs its script once for any number of devices
    }
    return {"program": SCRIPT, "sidecar": True, "training_config": training}


def _refuse_others(number: int, task: Mapping[str, Any], known: Sequence[str], why: str) -> None:
    """Raises BadSpec."""
    for name, value in task["algorithm"].items():
        if name not in known and value:
            raise BadSpec(f"{why}; leave it out, or algorithm.id", field=f"tasks.{number}.algorithm.{name}")
