"""Resumes a checkpoint of another number of ranks through DeepSpeed's universal format.

Lian et al., Universal Checkpointing, 2024 (arXiv:2406.18820).
"""

import subprocess
import sys
from pathlib import Path

from app.domain.spec.frameworks.deepspeed import STAGE
from workers.rank.run_context import RunContext
from workers.trainers.deepspeed.configuration import LATEST, zero_of
from workers.trainers.distributed import first_rank_first
from workers.trainers.failures import InvalidConfig

_LATEST_UNIVERSAL = "latest_universal"
# One worker: each further one would need memory for another shard.
_CONVERT = (sys.executable, "-m", "deepspeed.checkpoint.ds_to_universal", "--inject_missing_state")
_WORKERS = ("--num_extract_workers", "1", "--num_merge_workers", "1")


def is_needed(context: RunContext) -> bool:
    """Whether the checkpoint was written by another number of ranks."""
    manifest = context.resume_manifest()
    return manifest is not None and manifest.world_size != context.spec.world_size


def resumable(context: RunContext, checkpoint: str) -> str:
    """A directory that this number of ranks can resume from; the checkpoint itself if its shards fit.

    Raises InvalidConfig when its shards are of another kind.
    """
    source = Path(checkpoint)
    _check_stage(context, source)
    if not is_needed(context):
        return checkpoint
    found = context.work_dir / "universal" / source.name
    with first_rank_first():
        if not found.exists():
            _convert(source, found)
    return str(found)


def _check_stage(context: RunContext, checkpoint: Path) -> None:
    stage = zero_of(context.spec).stage
    divided = not any(checkpoint.glob("*/mp_rank_00_model_states.pt"))
    if divided != (stage == 3):
        other = "3" if divided else "1 or 2"
        raise InvalidConfig(
            f"training_config.framework.config.{STAGE} is {stage}, but the checkpoint was taken in stage {other}, "
            f"which shards differently; set {STAGE} to {other}"
        )


def _convert(checkpoint: Path, directory: Path) -> None:
    """Copy the checkpoint's files and convert its shards to the universal format."""
    unfinished = directory.with_suffix(".tmp")
    unfinished.mkdir(parents=True)
    for path in checkpoint.iterdir():
        (unfinished / path.name).symlink_to(path)
    parts = (checkpoint / LATEST).read_text(encoding="utf-8")
    target = unfinished / f"{parts}_universal"
    folders = ("--input_folder", str(checkpoint / parts), "--output_folder", str(target))
    subprocess.run([*_CONVERT, *_WORKERS, *folders], check=True)
    (unfinished / _LATEST_UNIVERSAL).write_text(target.name, encoding="utf-8")
    unfinished.rename(directory)
