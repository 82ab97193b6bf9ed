"""A rank keeps to its part of the GPU's memory, set before anything is allocated."""

from typing import Any

import pytest
import torch

from workers.rank.run_context import RunSpec
from workers.trainers import distributed


def calls_of(monkeypatch: pytest.MonkeyPatch, **spec: Any) -> list[tuple[str, float]]:
    """What a single rank says to CUDA as it joins."""
    said: list[tuple[str, float]] = []
    for name in ("set_device", "set_per_process_memory_fraction"):
        monkeypatch.setattr(torch.cuda, name, lambda value, name=name: said.append((name, value)))
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)
    monkeypatch.setenv("LOCAL_RANK", "0")
    whole = {"run_dir": "/run", "framework": "HF_TRAINER", "training_type": "SFT", "hyperparameters": {}}
    distributed.join(RunSpec.from_document({**whole, "model_path": "", "data_paths": (), **spec}))
    return said


def test_a_part_of_a_gpu_is_a_part_of_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    said = calls_of(monkeypatch, device_type="cuda", gpu_memory_fraction=0.25)

    assert said == [("set_device", 0), ("set_per_process_memory_fraction", 0.25)]


def test_a_whole_gpu_has_no_limit_and_the_cpu_none_of_this(monkeypatch: pytest.MonkeyPatch) -> None:
    assert calls_of(monkeypatch, device_type="cuda") == [("set_device", 0)]
    assert calls_of(monkeypatch, device_type="cpu", gpu_memory_fraction=0.25) == []
