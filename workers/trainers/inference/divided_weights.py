"""Puts the weights of a checkpoint together that the ranks of a training have written in parts, before they are loaded.

This runs in the job's sandbox: the parts are pickles of a rank, which may have run code of users.
"""

import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from safetensors import SafetensorError

from app.domain.spec.frameworks.deepspeed import DEEPSPEED
from app.domain.spec.frameworks.fsdp import FSDP
from app.domain.spec.frameworks.megatron import MEGATRON
from workers.rank.run_context import RunContext
from workers.trainers import weight_files
from workers.trainers.distributed import first_rank_first
from workers.trainers.failures import ModelNotFound, TrainingFailure, error_type
from workers.trainers.fsdp import whole_weights as fsdp
from workers.trainers.inference.engine.loading import ADAPTER_CONFIG
from workers.trainers.inference.section import inference_of
from workers.trainers.megatron import whole_weights as megatron

_CONFIG = "config.json"
_ZERO = (sys.executable, "-m", "workers.trainers.deepspeed.whole_weights")
# Of the files beside the parts these describe the state of a training; the others are configurations and a tokenizer.
_OF_THE_TRAINING = (".pt", ".pth", ".bin", ".distcp")
_MOST_SAID = 64 << 10  # bytes of what the program says that are passed on to the log
# What missing, damaged and foreign parts raise, with what the documentation of pickle says of unpickling.
_DAMAGED = (
    AttributeError,
    EOFError,
    FileNotFoundError,
    ImportError,
    IndexError,
    KeyError,
    RuntimeError,
    SafetensorError,
    TypeError,
    ValueError,
    pickle.UnpicklingError,
)
_WEIGHTS: dict[str, Callable[[Path], weight_files.Weights]] = {
    FSDP: fsdp.whole_weights,
    MEGATRON: megatron.whole_weights,
}


def join_weights(context: RunContext) -> None:
    """Let ``context.spec.weights_path`` be a directory with whole weights, which the first rank writes.

    Raises ModelNotFound for a checkpoint that can't be put together, and OSError when the disk refuses.
    """
    model = inference_of(context.spec).model
    joined = context.work_dir / "weights"
    with context.section("putting the weights together"), first_rank_first():
        if context.rank == 0:
            _join(model.divided, Path(context.spec.weights_path), joined, adapter=model.adapter)
    context.spec = replace(context.spec, weights_path=str(joined))


def _join(framework: str, checkpoint: Path, directory: Path, *, adapter: bool) -> None:
    described = ADAPTER_CONFIG if adapter else _CONFIG
    if not (checkpoint / described).is_file():
        raise ModelNotFound(
            f"the checkpoint has no {described}, as those of {framework} that an older version has saved: resume its "
            "job, whose next checkpoint has one, or use the result"
        )
    shutil.rmtree(directory, ignore_errors=True)  # of ranks that were started again
    directory.mkdir()
    for path in checkpoint.iterdir():
        if path.is_file() and path.suffix not in _OF_THE_TRAINING:
            shutil.copyfile(path, directory / path.name)
    try:
        if framework == DEEPSPEED:
            _join_zero(checkpoint, directory, adapter=adapter)
        else:
            write = weight_files.write_adapter if adapter else weight_files.write_model
            write(_WEIGHTS[framework](checkpoint), directory)
    except _DAMAGED as error:
        if error_type(error) != TrainingFailure.error_type:
            raise  # such as a full disk
        raise ModelNotFound(f"the parts of the checkpoint of {framework} can't be put together: {error}") from error


def _join_zero(checkpoint: Path, directory: Path, *, adapter: bool) -> None:
    """Raises RuntimeError, and MemoryError when memory was short."""
    kind = ("--adapter",) if adapter else ()
    with tempfile.TemporaryFile(dir=directory.parent) as errors:
        ended = subprocess.run([*_ZERO, str(checkpoint), str(directory), *kind], stderr=errors, check=False)
        errors.seek(max(0, errors.seek(0, os.SEEK_END) - _MOST_SAID))
        said = errors.read().decode(errors="replace").strip()
    if said:
        print(said, file=sys.stderr, flush=True)  # noqa: T201  (the job's log)
    last = said.splitlines()[-1] if said else f"the program ended with exit code {ended.returncode}"
    if ended.returncode == -signal.SIGKILL:
        raise MemoryError("the program that puts the weights together was killed, which the kernel does without memory")
    if ended.returncode != 0:
        raise (MemoryError if last.partition(":")[0].endswith("MemoryError") else RuntimeError)(last)
