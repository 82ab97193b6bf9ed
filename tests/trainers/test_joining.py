"""What a rank fixes of its process before it trains."""

import dataclasses
from pathlib import Path

import pytest
import torch

from workers.rank.run_context import RunSpec
from workers.trainers import distributed

SPEC = RunSpec(
    run_dir=Path("/run"), framework="HF_TRAINER", training_type="SFT", hyperparameters={}, model_path="", data_paths=()
)


@pytest.fixture
def asked(monkeypatch):
    """What CUDA and the group are asked for; neither is there."""
    calls = []
    monkeypatch.setattr(torch.cuda, "set_device", lambda index: calls.append(("device", index)))
    monkeypatch.setattr(
        torch.cuda, "set_per_process_memory_fraction", lambda fraction: calls.append(("memory", fraction))
    )
    monkeypatch.setattr(torch.distributed, "init_process_group", lambda backend, **_: calls.append(("group", backend)))
    monkeypatch.setattr(torch, "set_num_threads", lambda count: calls.append(("threads", count)))
    monkeypatch.setenv("LOCAL_RANK", "1")
    return calls


def joined(asked, **changes):
    distributed.join(dataclasses.replace(SPEC, **changes))
    return asked


def test_a_rank_on_a_gpu_takes_no_more_memory_than_it_may(asked):
    found = joined(asked, device_type="cuda", world_size=2, gpu_memory_percent=80)

    assert found == [("threads", 1), ("device", 1), ("memory", 0.8), ("group", "cpu:gloo,cuda:nccl")]


def test_memory_limit_holds_for_a_single_rank(asked):
    found = joined(asked, device_type="cuda", gpu_memory_percent=50)

    assert found == [("threads", 1), ("device", 1), ("memory", 0.5)]


def test_a_rank_with_a_part_of_a_gpu_takes_as_much_of_that_part(asked):
    found = joined(asked, device_type="cuda", gpu_memory_percent=80, gpu_memory_fraction=0.5)

    assert found == [("threads", 1), ("device", 1), ("memory", 0.4)]


def test_without_a_limit_nothing_is_limited(asked):
    assert joined(asked, device_type="cuda") == [("threads", 1), ("device", 1)]


def test_a_cpu_has_no_limit(asked):
    assert joined(asked, device_type="cpu", gpu_memory_percent=80) == [("threads", 1)]
