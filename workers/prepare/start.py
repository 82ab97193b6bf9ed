"""Where an attempt starts: what earlier ones have saved, and its files put where the ranks look for them."""

import shutil
from dataclasses import replace
from pathlib import Path

from app.domain.spec.frameworks.custom import checkpoint_glob
from app.domain.spec.inference import EVALUATION
from app.services.attempts.work_orders import WorkOrder
from app.storage.storage import Storage
from workers.prepare.finished_shards import ShardInputs, restore_shards
from workers.prepare.inputs.input_library import JobInputs
from workers.prepare.inputs.resume_point import StartPoint, choose_start, refuse_changed_data
from workers.rank.script_checkpoints import FILES
from workers.run_dir.layout import RunDirectory


def find_start(
    storage: Storage, work: WorkOrder, run: RunDirectory, sources: JobInputs, weights: str = ""
) -> StartPoint:
    """The checkpoint to resume from, or the finished shards, made with the model of digest ``weights``.

    Raises AttemptFailed and OSError.
    """
    if not work.is_training:
        inputs = ShardInputs(data=sources.data, weights=weights)
        start = restore_shards(storage, work.shards, run.output, run.path / "resume", inputs)
        return replace(start, step=len(start.shards)) if work.kind == EVALUATION else start
    start = choose_start(storage, work.resume, run.path / "resume")
    refuse_changed_data(start, sources.data)
    if start.path is not None and checkpoint_glob(work.document):
        restore_script_files(start.path, run)
    return start


def restore_script_files(checkpoint: Path, run: RunDirectory) -> None:
    """Restore saved copies of the script's own files to their original place. Raises OSError."""
    kept = checkpoint / FILES
    if kept.is_dir():  # otherwise a script saved it through hooks, in this job or the one before
        shutil.copytree(kept, run.path / "work", symlinks=True, dirs_exist_ok=True)
