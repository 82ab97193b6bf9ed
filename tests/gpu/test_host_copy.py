"""A copy of what lies on a GPU is made in the GPU's own order, into memory that it can write to by itself."""

import pytest
import torch

from workers.trainers.hf_trainer.checkpoints.host_copy import HostCopy

pytestmark = pytest.mark.gpu


def test_what_happens_after_it_was_taken_is_not_in_the_copy() -> None:
    copy = HostCopy()
    weights = torch.full((64, 1 << 20), 1.0, device="cuda")
    copy.reserve({"weights": weights})

    taken = copy.take({"weights": weights})["weights"]
    weights.mul_(0.0)
    copy.wait()

    assert taken.is_pinned()
    assert taken.device.type == "cpu"
    assert bool((taken == 1.0).all())
    assert float(weights.sum()) == 0.0
