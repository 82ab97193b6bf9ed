"""Which precision a job gets."""

from pathlib import Path

import pytest
import torch

from workers.rank.run_context import RunSpec
from workers.trainers.hf_trainer.model.pretrained import precision


def spec(dtype, device_type="cuda"):
    return RunSpec(
        run_dir=Path("/nowhere"),
        framework="HF_TRAINER",
        training_type="SFT",
        hyperparameters={},
        model_path="/model",
        data_paths=(),
        training_config={"base_model": {"dtype": dtype}},
        device_type=device_type,
    )


@pytest.mark.parametrize(
    ("dtype", "has_bf16", "weights", "bf16", "fp16"),
    [
        ("auto", True, torch.float32, True, False),
        ("auto", False, torch.float32, False, False),
        ("bfloat16", True, torch.bfloat16, True, False),
        ("float16", False, torch.float32, False, True),
        ("float32", True, torch.float32, False, False),
    ],
)
def test_gpu_computes_in_what_it_can(dtype, has_bf16, weights, bf16, fp16):
    chosen = precision(spec(dtype), computes_bf16=lambda: has_bf16)

    assert (chosen.weights, chosen.bf16, chosen.fp16) == (weights, bf16, fp16)
    assert ("float32" in chosen.note) == (dtype == "auto" and not has_bf16)


def test_emulated_bfloat16_does_not_count():
    assert not precision(spec("auto")).bf16 or torch.cuda.is_bf16_supported(including_emulation=False)


def test_cpu_needs_no_note():
    assert precision(spec("auto", "cpu")).note == ""
