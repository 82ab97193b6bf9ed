"""Model and data as a preflight resolves them: large files are not fetched, and no digests are computed."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from workers.fetching.digests import Digests
from workers.prepare.inputs.input_library import JobInputs, Library, LocalModel


class _NoDigests(Digests):
    """Skips digests: reading a large file twice would take most of the time."""

    def of(self, path: Path) -> str:  # noqa: ARG002  (the same for every file)
        return ""


@dataclass(frozen=True, kw_only=True)
class PreviewLibrary(Library):
    """Computes no digests of local files and fetches no weights of remote models."""

    @classmethod
    def of(cls, library: Library, *, fetch_bytes: int) -> "PreviewLibrary":
        """The same library with a limit on fetched bytes."""
        values = {each.name: getattr(library, each.name) for each in fields(library)}
        return cls(**{**values, "fetch_bytes": fetch_bytes, "without_weights": True})

    @cached_property
    def digests(self) -> Digests:
        return _NoDigests(self.cache_dir)


def has_weights(model: LocalModel, library: Library) -> bool:
    """Whether the model directory must contain weights."""
    return not model.path.is_relative_to(library.cache_dir)


def all_local(sources: JobInputs, library: Library) -> bool:
    """Whether nothing was fetched; then the coordinator already knew the fingerprint."""
    paths = [model.path for model in _models(sources)] + [file.path for data in sources.data for file in data.files]
    paths += sources.benchmark_files.values()
    return not any(path.is_relative_to(library.cache_dir) for path in paths)


def identities(sources: JobInputs) -> list[Any]:
    """Values that change with the content of any file, independent of where fetched files were stored."""
    found: list[Any] = [
        [data.location, file.name, file.sha256 or _facts(file.path)] for data in sources.data for file in data.files
    ]
    for model in _models(sources):
        found += [[path.name, *_facts(path)] for path in sorted(model.path.iterdir())]
    if sources.reward is not None:
        found.append([sources.reward.name, *_facts(sources.reward)])
    found += [[location, *_facts(path)] for location, path in sorted(sources.benchmark_files.items())]
    return found


def _models(sources: JobInputs) -> Iterator[LocalModel]:
    return (model for model in (sources.model, sources.tokenizer, sources.reward_model) if model is not None)


def _facts(path: Path) -> tuple[int, ...]:
    # Without the change time, which another hard link to a cached file modifies.
    status = os.stat(path)  # noqa: PTH116 – links are followed
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
