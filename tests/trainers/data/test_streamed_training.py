"""A training on streamed records, stopped in the middle and resumed: the same as one that was never stopped."""

from typing import Any

import pytest

from app.domain.spec.hyperparameters.parsing import parse
from tests.trainers.in_process import runs

pytestmark = pytest.mark.long

STEPS = 12


@pytest.fixture
def outcomes(tmp_path, assets):
    """What came of three runs in one group of processes: whole, paused after so many steps, resumed."""

    def trained(training_type, world_size, pause_after):
        def plan(name, **more):
            return {"spec": _spec(tmp_path / name, assets, training_type, world_size), **more}

        plans = {
            "whole": plan("whole"),
            "paused": plan("paused", stop_at=pause_after),
            "resumed": plan("resumed", resume_from="paused"),
        }
        return {name: each.series("loss") for name, each in runs(tmp_path, plans, world_size=world_size).items()}

    return trained


@pytest.mark.parametrize(("training_type", "world_size", "pause_after"), [("SFT", 2, 8), ("CONTINUED_PRETRAIN", 1, 6)])
def test_paused_stream_goes_on_bit_by_bit(tmp_path, outcomes, training_type, world_size, pause_after):
    """The file has 60 records: so many steps go round more than once, and what is skipped may do so, too."""
    loss = outcomes(training_type, world_size, pause_after)

    assert list(loss["resumed"]) == list(range(pause_after + 1, STEPS + 1))
    assert {**loss["paused"], **loss["resumed"]} == loss["whole"]
    assert len(set(loss["whole"].values())) == STEPS
    weights = [(tmp_path / name / "output" / "model.safetensors").read_bytes() for name in ("whole", "resumed")]
    assert weights[0] == weights[1]


def _spec(run_dir, assets, training_type, world_size):
    data: dict[str, Any] = {"batch_size": 4, "max_seq_length": 48, "streaming": True, "shuffle_buffer": 16}
    if training_type == "CONTINUED_PRETRAIN":
        data["preprocess"] = {"field_mapping": {"text": "completion"}}
    return {
        "run_dir": str(run_dir),
        "framework": "HF_TRAINER",
        "training_type": training_type,
        "data_config": data,
        "output_config": {"checkpoint": {"save_steps": 100}},
        "hyperparameters": parse("HF_TRAINER", training_type, {"learning_rate": "5e-3", "max_steps": str(STEPS)}),
        "model_path": str(assets / "model"),
        "data_paths": [str(assets / "train.jsonl")],
        "world_size": world_size,
    }
