"""Fingerprints of everything that determines an inspection's result; computed before each one, so kept cheap."""

import hashlib
import itertools
import json
import os
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Any

from app.domain.errors import BadSpec
from app.domain.spec.locations.paths import ReadingRules, candidates, job_of_path, local_path, readable
from app.domain.spec.locations.uploads import is_upload
from app.domain.spec.model import JobDocument
from app.domain.spec.role_documents import training_of

# Scanning more directory entries would block the API and the admission of other jobs.
MOST_FILES = 10_000
# The hyperparameters that affect how records are processed or a model is loaded.
SHAPING = (
    "packing",
    "assistant_only_loss",
    "completion_only_loss",
    "max_steps",
    "eval_batch_size",
    "algorithm",
    "reward",
    "reward_model_id",
    "max_prompt_length",
    "max_completion_length",
    "lora_target_modules",
    "modules_to_save",
)
_WILD = "*?["


class _TooMany(Exception):
    """A pattern or directory with too many entries."""


def fingerprint(document: JobDocument, locations: Iterable[str], rules: ReadingRules, *extent: object) -> str:
    """64 hex digits for the document and the current state of its files; empty when one is not on this disk.

    ``extent``: further inputs, such as the project and the number of inspected records.
    """
    found: list[list[Any]] = []
    for location in locations:
        path = seen_here(location, rules)
        if path is None:
            return ""
        try:
            files = _files(path, rules)
            found += [[location, *_facts(file)] for file in files]
        except (OSError, _TooMany):
            return ""
        if not files:
            return ""
    return combined(document, found, *extent)


def combined(document: JobDocument, identities: Iterable[Any], *extent: object) -> str:
    """Fingerprint from file identities that are already known; they must be JSON-serializable."""
    text = json.dumps([_deciding(document), list(identities), [str(each) for each in extent]], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def seen_here(location: str, rules: ReadingRules) -> str | None:
    """Real path, or pattern, of a location that jobs may read, if it exists on this machine."""
    try:
        path = local_path(location, field="")
    except BadSpec:
        return None
    if path is None or is_upload(location):
        return None
    return next((real for real in candidates(path, rules) if readable(real, rules) and exists(real, rules)), None)


def exists(real_path: str, rules: ReadingRules) -> bool:
    """Whether a file or directory exists or matches the pattern; True if there are too many entries to tell."""
    if os.path.exists(real_path):  # noqa: PTH110 – Path.exists raises for names that are too long or not accessible
        return True
    try:
        return _is_pattern(real_path) and bool(_matches(real_path, rules))
    except _TooMany:
        return True


def _files(path: str, rules: ReadingRules) -> list[str]:
    """Files of a path: itself, its direct entries, or the matches of a pattern. Raises OSError, _TooMany."""
    if os.path.isdir(path):  # noqa: PTH112 – as above
        with os.scandir(path) as entries:
            names = [entry.path for entry in itertools.islice(entries, MOST_FILES + 1)]
        if len(names) > MOST_FILES:
            raise _TooMany
        return sorted(names)
    return [path] if os.path.exists(path) else _matches(path, rules)  # noqa: PTH110


def _matches(pattern: str, rules: ReadingRules) -> list[str]:
    """Sorted readable matches of an absolute pattern. Raises _TooMany."""
    level, scanned = ["/"], itertools.count(1)
    for segment in filter(None, pattern.split("/")):
        level = [entry for directory in level for entry in _entries(directory, segment, scanned)]
    owner = job_of_path(pattern, rules)
    real = ((path, rules.real_path(path)) for path in level)
    # Patterns don't match results of other jobs: ownership is checked only for a job that is named literally.
    return sorted(path for path, at in real if readable(at, rules) and job_of_path(at, rules) == owner)


def _entries(directory: str, segment: str, scanned: Iterator[int]) -> Iterator[str]:
    """Entries of a directory that match one segment of a pattern; empty if it is not a directory."""
    if not _is_pattern(segment):
        path = os.path.join(directory, segment)  # noqa: PTH118 – text only
        if next(scanned) > MOST_FILES:
            raise _TooMany
        yield from [path] if os.path.lexists(path) else []
        return
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if next(scanned) > MOST_FILES:
                    raise _TooMany
                hidden = entry.name.startswith(".") and not segment.startswith(".")
                if not hidden and fnmatchcase(entry.name, segment):
                    yield entry.path
    except OSError:
        return


def _is_pattern(path: str) -> bool:
    return any(sign in path for sign in _WILD)


def _facts(file: str) -> tuple[str | int, ...]:
    """Metadata that changes with the content: a file's change time can't be set back."""
    status = os.stat(file)  # noqa: PTH116 – links are followed
    return file, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _deciding(document: JobDocument) -> dict[str, Any]:
    training, resources = document.training_config, training_of(document).resource_config
    given = training.hyperparameters
    return {
        "training_type": training.training_type,
        "framework": training.framework.type,
        "base_model": training.base_model.to_json(),
        "hyperparameters": {name: given[name] for name in SHAPING if name in given},
        **({"grader": training.grader} if training.grader else {}),
        "data_config": document.data_config.to_json(),
        "export_format": document.output_config.export_format,
        "ranks": resources.gpu_count * resources.node_count,
        **_of_records(document),
    }


def _of_records(document: JobDocument) -> dict[str, Any]:
    """What a job that trains nothing reads its records for; its weights are not inspected."""
    if document.inference is None:
        return {}
    stored = document.inference.to_json()
    return {name: stored[name] for name in ("task", "output", "on_error", "benchmarks") if name in stored}
