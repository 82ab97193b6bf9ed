"""Which error type a failure is reported with."""

import errno

import pytest
import torch

from trainyard.protocol.checkpoint_manifest import CorruptCheckpoint
from workers.rank.run_context import CheckpointNotSaved
from workers.trainers import failures


@pytest.mark.parametrize(
    ("error", "error_type"),
    [
        (failures.DataInvalid("x"), "DATA_INVALID"),
        (failures.ModelNotFound("x"), "MODEL_NOT_FOUND"),
        (MemoryError(), "HOST_OUT_OF_MEMORY"),
        (torch.OutOfMemoryError("x"), "OUT_OF_MEMORY"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"), "HOST_OUT_OF_MEMORY"),
        (RuntimeError("[..] Connection closed by peer [127.0.0.1]:1"), "RANK_KILLED"),
        (RuntimeError("The server socket has failed to listen: EADDRINUSE, address already in use"), "NETWORK_ERROR"),
        (CheckpointNotSaved("x"), "STORAGE_ERROR"),
        (CorruptCheckpoint("f", "x"), "STORAGE_ERROR"),
        (CheckpointNotSaved("x", "DISK_FULL"), "DISK_FULL"),
        (OSError(errno.ENOSPC, "No space left on device"), "DISK_FULL"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), "DISK_FULL"),
        (OSError(errno.EIO, "Input/output error"), "STORAGE_ERROR"),
        (RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)"), "DISK_FULL"),
        (ValueError("anything else"), "TRAINER_ERROR"),
    ],
)
def test_exceptions_are_mapped_to_error_types(error, error_type):
    assert failures.error_type(error) == error_type
