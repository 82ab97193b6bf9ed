"""The task of a benchmark, from the YAML files in its directory, with data that lies there, too."""

import random
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from datasets.packaged_modules import _PACKAGED_DATASETS_MODULES
from lm_eval.api.task import Task as HarnessTask
from lm_eval.tasks import TaskManager
from lm_eval.tasks._index import Entry, Kind
from lm_eval.tasks._yaml_loader import load_yaml

from workers.trainers.failures import DataNotFound, InvalidConfig, is_out_of_memory
from workers.trainers.rewards import RewardFailed

# The harness's own, so that figures are those that it gives.
_SEED, _NUMPY_SEED, _FEWSHOT_SEED = 0, 1234, 1234
_FOLDERS, _FILES = ("data_dir",), "data_files"  # of dataset_kwargs
_URI = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_SHOWN = 20
_OFFLINE = (
    "jobs fetch nothing from the hub: put the data into parameters.task_dir, and name it in the task's YAML file by "
    "dataset_path: json and dataset_kwargs.data_files, with paths relative to that file"
)


class TaskFailed(RewardFailed):
    """The files or functions of a task have raised an error."""


def load_task(name: str, directory: Path, cache: Path, num_fewshot: int | None) -> HarnessTask:
    """The task of this name, with its data; ``cache`` is where data sets are converted.

    Raises InvalidConfig, DataNotFound and TaskFailed.
    """
    manager = _manager(name, directory)
    random.seed(_SEED)
    np.random.seed(_NUMPY_SEED)  # noqa: NPY002  what functions of tasks draw from
    config = _config(name, _entry(name, directory, manager))
    config["dataset_kwargs"] = {**(config.get("dataset_kwargs") or {}), "cache_dir": str(cache)}
    try:
        task = manager.load([config])["tasks"][name]
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise _failure(name, config, error) from error
    _set_fewshot(name, task, num_fewshot)
    return task


def check_place(name: str, directory: Path) -> None:
    """Check that the task is there, and its data no data set of the hub; runs none of its functions.

    Raises InvalidConfig, DataNotFound and TaskFailed.
    """
    entry = _entry(name, directory, _manager(name, directory))
    config, path = entry.cfg or {}, Path(entry.yaml_path)
    place = config.get("dataset_path")
    if entry.kind is not Kind.TASK or config.get("custom_dataset") is not None or not isinstance(place, str):
        return  # its functions give it data
    if place not in _PACKAGED_DATASETS_MODULES and not (path.parent / place).exists():
        raise DataNotFound(f"benchmark lm_eval:{name}: its data ({place[:128]}) is on the hub; {_OFFLINE}")


def _manager(name: str, directory: Path) -> TaskManager:
    """Reads all YAML files there, with names of functions. Raises InvalidConfig."""
    if not directory.is_dir():
        raise InvalidConfig(f"benchmark lm_eval:{name}: parameters.task_dir {directory.name} is no directory")
    return TaskManager(include_path=str(directory), include_defaults=False)


def _entry(name: str, directory: Path, manager: TaskManager) -> Entry:
    """Raises InvalidConfig and TaskFailed."""
    entry = manager.task_index.get(name)
    if entry is None:
        for path in sorted(directory.rglob(f"{name}.yaml")):
            _loaded(name, path, functions=False)  # the harness leaves out those that it can't read
        known = ", ".join(manager.all_subtasks[:_SHOWN]) or "none"
        raise InvalidConfig(
            f"benchmark lm_eval:{name}: no YAML file below parameters.task_dir ({directory.name}) describes this task; "
            f"tasks there: {known}. To measure a task of the harness's own, copy its files there; {_OFFLINE}"
        )
    if entry.kind in (Kind.GROUP, Kind.TAG):
        raise InvalidConfig(
            f"benchmark lm_eval:{name}: this is a {entry.kind.name.lower()} of several tasks; name each of them as a "
            "benchmark of its own"
        )
    return entry


def _config(name: str, entry: Entry) -> dict[str, Any]:
    """The task's own, with its functions, and with paths of its data made absolute. Raises TaskFailed."""
    path = Path(entry.yaml_path)
    config = _loaded(name, path, functions=True)
    given = dict(config.get("dataset_kwargs") or {})
    if _FILES in given:
        given[_FILES] = _absolute(given[_FILES], path.parent)
    given |= {key: _absolute(given[key], path.parent) for key in _FOLDERS if key in given}
    place = config.get("dataset_path")
    if isinstance(place, str) and (path.parent / place).exists():
        config["dataset_path"] = str(path.parent / place)
    # A group's list of tasks that this one may be in is none of a single task.
    return {**config, "task": name, "dataset_kwargs": given}


def _loaded(name: str, path: Path, *, functions: bool) -> dict[str, Any]:
    """``functions``: with those that it names, whose modules run; else with their names. Raises TaskFailed."""
    try:
        config: dict[str, Any] = load_yaml(path, resolve_func=functions)
    except Exception as error:
        raise TaskFailed(f"benchmark lm_eval:{name}: {path.name} can't be loaded: {_shown(error)}") from error
    return config


def _absolute(value: object, base: Path) -> object:
    """Paths by split, in a list, or alone."""
    if isinstance(value, Mapping):
        return {key: _absolute(each, base) for key, each in value.items()}
    if isinstance(value, list):
        return [_absolute(each, base) for each in value]
    return str(base / value) if isinstance(value, str) and not _URI.match(value) else value


def _set_fewshot(name: str, task: HarnessTask, asked: int | None) -> None:
    """As the harness: a task that says 0 keeps it."""
    own = task.get_config("num_fewshot")
    if asked and own == 0:
        raise InvalidConfig(
            f"benchmark lm_eval:{name}: the task's YAML file sets num_fewshot 0, which the harness keeps; remove it "
            "there, or leave parameters.num_fewshot out"
        )
    task.set_config(key="num_fewshot", value=asked if asked is not None else own or 0)
    task.set_fewshot_seed(seed=_FEWSHOT_SEED)


def _failure(name: str, config: Mapping[str, Any], error: Exception) -> Exception:
    """What an error while the task was made means."""
    begin = f"benchmark lm_eval:{name}"
    if isinstance(error, OSError | ConnectionError):
        place = str(config.get("dataset_path"))
        return DataNotFound(f"{begin}: its data ({place[:128]}) is not on this node ({_shown(error)}); {_OFFLINE}")
    return TaskFailed(f"{begin}: the task can't be made: {_shown(error)}")


def _shown(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip()[:512]}"
