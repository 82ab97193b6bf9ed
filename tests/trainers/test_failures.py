"""Which error type a failure is reported with."""

import errno

import pytest
import torch

from trainyard._manifest import CorruptCheckpoint
from workers.run_context import CheckpointNotSaved
from workers.trainers import failures


@pytest.mark.parametrize(
    ("error", "error_type"),
    [
        (failures.DataInvalid("x"), "DATA_INVALID"),
        (failures.ModelNotFound("x"), "MODEL_NOT_FOUND"),
        (MemoryError(), "OUT_OF_MEMORY"),
        (torch.OutOfMemoryError("x"), "OUT_OF_MEMORY"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"), "OUT_OF_MEMORY"),
        (RuntimeError("[..] Connection closed by peer [127.0.0.1]:1"), "RANK_KILLED"),
        (CheckpointNotSaved("x"), "STORAGE_ERROR"),
        (CorruptCheckpoint("f", "x"), "STORAGE_ERROR"),
        (OSError(errno.ENOSPC, "No space left on device"), "STORAGE_ERROR"),
        (ValueError("anything else"), "TRAINER_ERROR"),
    ],
)
def test_cause_is_named(error, error_type):
    assert failures.error_type(error) == error_type
