"""Storage settings: where files are stored, and limits on a job's output."""

from dataclasses import dataclass
from pathlib import Path

from config.values import rules
from config.values.fields import setting


@dataclass(frozen=True, kw_only=True)
class StorageSettings:
    url: str = setting("", "where checkpoints, artefacts and logs are stored; empty: `files` in the data directory")
    roots: tuple[Path, ...] = setting((), "colon-separated directories from which jobs may read models and data")
    output_roots: tuple[Path, ...] = setting(
        (),
        "colon-separated directories below which output_path and log_path may lie; {project} in one stands for the "
        "job's project; empty: all roots, for all projects",
    )
    max_output_files: int = setting(10_000, "a job whose output has more files fails during export", rules.at_least_one)
    max_output_size_mb: int = setting(
        1 << 20, "the same for the total size of the output; sparse files count at their full size", rules.at_least_one
    )
