"""Why a training fails, in the closed list of error types that the platform knows."""

import errno
import sys

from trainyard._manifest import CorruptCheckpoint
from workers.run_context import CheckpointNotSaved


class TrainingFailure(Exception):
    """A failure whose cause the trainer knows."""

    error_type = "TRAINER_ERROR"


class InvalidConfig(TrainingFailure):
    error_type = "INVALID_CONFIG"


class ModelNotFound(TrainingFailure):
    error_type = "MODEL_NOT_FOUND"


class DataNotFound(TrainingFailure):
    error_type = "DATA_NOT_FOUND"


class DataInvalid(TrainingFailure):
    error_type = "DATA_INVALID"


class NonFiniteLoss(TrainingFailure):
    error_type = "NON_FINITE_LOSS"


class ExportFailed(TrainingFailure):
    error_type = "EXPORT_FAILED"


# What the words of an error say that its class does not.
_BY_MESSAGE = (
    ("can't allocate memory", "OUT_OF_MEMORY"),
    ("out of memory", "OUT_OF_MEMORY"),
    # How gloo and NCCL report that another rank went away: that one knows the cause.
    ("connection closed by peer", "RANK_KILLED"),
    ("connection reset by peer", "RANK_KILLED"),
    ("remote process exited", "RANK_KILLED"),
)


def error_type(error: BaseException) -> str:
    """The error type to report for `error`."""
    if isinstance(error, TrainingFailure):
        return error.error_type
    if isinstance(error, MemoryError) or _is_out_of_device_memory(error):
        return "OUT_OF_MEMORY"
    if isinstance(error, CheckpointNotSaved | CorruptCheckpoint):
        return "STORAGE_ERROR"
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
        return "STORAGE_ERROR"
    message = str(error).lower()
    return next((kind for words, kind in _BY_MESSAGE if words in message), "TRAINER_ERROR")


def _is_out_of_device_memory(error: BaseException) -> bool:
    # Not imported here: what reads data names its failures in processes that have no torch.
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(error, torch.OutOfMemoryError)
