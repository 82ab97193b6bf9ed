"""A GPU runs behind the process that tells it what to do: what it takes is known by its own queue."""

import pytest
import torch

from workers.trainers.hf_trainer.monitoring.straggler_timing import Timestamp

pytestmark = pytest.mark.gpu

CYCLES = 1 << 30  # about half a second


def test_time_of_a_gpu_that_runs_behind_counts() -> None:
    begun = Timestamp(on_gpu=True)
    torch.cuda._sleep(CYCLES)
    ended = Timestamp(on_gpu=True)

    assert ended.at - begun.at < 0.1
    assert begun.seconds_until(ended) > 0.1
