"""What decides the result of an inspection, as one number: asked before each, so it must cost next to nothing."""

import glob
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from app.domain.errors import BadSpec
from app.domain.locations import ReadingRules, candidates, local_path, readable

MOST_FILES = 10_000
# Of the hyperparameters only these change what becomes of a record or how a model is loaded.
SHAPING = (
    "packing",
    "assistant_only_loss",
    "completion_only_loss",
    "max_steps",
    "eval_batch_size",
    "lora_target_modules",
    "modules_to_save",
)
_WILD = "*?["


def fingerprint(spec: Mapping[str, Any], locations: Iterable[str], rules: ReadingRules, *extent: object) -> str:
    """64 hex digits for these files as they are now and this document; empty when anything does not lie on this disk.

    ``extent`` is what else decides: whose job it is, and how closely it is looked at.
    """
    found: list[list[Any]] = []
    for location in locations:
        path = seen_here(location, rules)
        if path is None:
            return ""
        files = list(_files(path))
        if not files or len(files) > MOST_FILES:
            return ""
        try:
            found += [[location, *_facts(file)] for file in files]
        except OSError:
            return ""
    return combined(spec, found, *extent)


def combined(spec: Mapping[str, Any], identities: Iterable[Any], *extent: object) -> str:
    """The same of files whose identities, JSON-able, somebody else has found."""
    text = json.dumps([_deciding(spec), list(identities), [str(each) for each in extent]], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def seen_here(location: str, rules: ReadingRules) -> str | None:
    """The real path, or the pattern, of a location that lies where jobs may read, if this machine has it."""
    try:
        path = local_path(location, field="")
    except BadSpec:
        return None
    if path is None:
        return None
    return next((real for real in candidates(path, rules) if readable(real, rules) and exists(real)), None)


def exists(real_path: str) -> bool:
    """Whether there is such a file or directory, or one that fits the pattern."""
    return Path(real_path).exists() or (is_pattern(real_path) and next(glob.iglob(real_path), None) is not None)  # noqa: PTH207 – absolute


def is_pattern(path: str) -> bool:
    return any(sign in path for sign in _WILD)


def _files(path: str) -> Iterator[str]:
    """The files that a path names: itself, what lies directly in it, or what fits."""
    if Path(path).is_dir():
        yield from (os.path.join(path, name) for name in sorted(os.listdir(path)))  # noqa: PTH118, PTH208 – text only
    elif Path(path).exists():
        yield path
    else:
        yield from sorted(glob.iglob(path))  # noqa: PTH207 – the path is absolute


def _facts(file: str) -> tuple[Any, ...]:
    """What changes with the content: nobody can set a file's change time back."""
    status = os.stat(file)  # noqa: PTH116 – links are followed
    return file, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _deciding(spec: Mapping[str, Any]) -> dict[str, Any]:
    training = spec["training_config"]
    given = training.get("hyperparameters") or {}
    return {
        "training_type": training["training_type"],
        "framework": training["framework"]["type"],
        "base_model": training["base_model"],
        "hyperparameters": {name: given[name] for name in SHAPING if name in given},
        "data_config": spec["data_config"],
        "ranks": (spec.get("resource_config") or {}).get("gpu_count"),
    }
