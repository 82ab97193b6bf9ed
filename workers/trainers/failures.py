"""Training failures and the platform's error types for them."""

import errno
import sys

from trainyard.protocol.checkpoint_manifest import CorruptCheckpoint
from workers.rank.run_context import CheckpointNotSaved


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


class Diverged(TrainingFailure):
    error_type = "DIVERGED"


class OutOfMemory(TrainingFailure):
    error_type = "OUT_OF_MEMORY"


class HostOutOfMemory(TrainingFailure):
    error_type = "HOST_OUT_OF_MEMORY"


class ExportFailed(TrainingFailure):
    error_type = "EXPORT_FAILED"


_BY_ERRNO = {errno.ENOSPC: "DISK_FULL", errno.EDQUOT: "DISK_FULL", errno.EIO: "STORAGE_ERROR"}

# Error messages that identify a cause that the exception class does not.
_BY_MESSAGE = (
    ("can't allocate memory", "HOST_OUT_OF_MEMORY"),  # torch's CPU allocator
    ("out of memory", "OUT_OF_MEMORY"),
    # The rendezvous port was taken in the meantime; the next attempt chooses another one.
    ("address already in use", "NETWORK_ERROR"),
    # torch.save and safetensors report it without an errno.
    ("no space left on device", "DISK_FULL"),
    # gloo and NCCL report that another rank disappeared; that rank knows the cause.
    ("connection closed by peer", "RANK_KILLED"),
    ("connection reset by peer", "RANK_KILLED"),
    ("remote process exited", "RANK_KILLED"),
)


def error_type(error: BaseException) -> str:
    """The error type to report for `error`."""
    if isinstance(error, TrainingFailure):
        return error.error_type
    if isinstance(error, MemoryError):
        return "HOST_OUT_OF_MEMORY"
    if _is_out_of_device_memory(error):
        return "OUT_OF_MEMORY"
    if isinstance(error, CheckpointNotSaved):
        return error.error_type
    if isinstance(error, CorruptCheckpoint):
        return "STORAGE_ERROR"
    if isinstance(error, OSError) and error.errno in _BY_ERRNO:
        return _BY_ERRNO[error.errno]
    message = str(error).lower()
    return next((kind for words, kind in _BY_MESSAGE if words in message), "TRAINER_ERROR")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether host or device memory ran out."""
    return error_type(error) in (OutOfMemory.error_type, HostOutOfMemory.error_type)


def _is_out_of_device_memory(error: BaseException) -> bool:
    # Not imported here: processes without torch use this for data errors.
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(error, torch.OutOfMemoryError)
