"""A checkpoint is written while the training continues, and holds the exact state of its step."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainers.in_process import plan_of, runs
from trainyard.protocol import checkpoint_manifest as _manifest

pytestmark = pytest.mark.long

METHODS: dict[str, tuple[str, dict[str, str]]] = {
    "sft": ("SFT", {"lr_scheduler_type": "cosine", "warmup_steps": "2"}),
    "lora": ("LORA", {"lora_dropout": "0.1", "modules_to_save": "embed_tokens", "optim": "adafactor"}),
}
STEPS, SAVED = 9, 3


@pytest.fixture(scope="module", params=[1, 2], ids=["1-rank", "2-ranks"])
def outcomes(request, assets, tmp_path_factory):
    """For each method a run whose disk is slow, and one that waits for its checkpoint, to pause."""
    directory = tmp_path_factory.mktemp("background")
    plans: dict[str, Any] = {}
    for method, (training_type, values) in METHODS.items():
        for name in ("slow", "waiting"):
            plans[f"{method} {name}"] = plan_of(
                directory / f"{method}-{name}",
                assets,
                training_type,
                {"max_steps": str(STEPS), **values},
                world_size=request.param,
                training_config={"evaluation": {"strategy": "no"}},
                output_config={"checkpoint": {"save_steps": SAVED if name == "slow" else 100}},
            )
        plans[f"{method} slow"] |= {"slow_writing": True, "saves_twice": True}
        plans[f"{method} waiting"] |= {"stop_at": SAVED}
    return plans, runs(directory, plans, world_size=request.param)


def saved_at(outcome, step):
    (path,) = [Path(path) for path in outcome.checkpoints if path.endswith(f"step-{step}")]
    return path


@pytest.mark.timeout(300)  # the first one waits for all the runs
@pytest.mark.parametrize("method", METHODS)
def test_training_goes_on_while_a_checkpoint_is_written(outcomes, method):
    slow = outcomes[1][f"{method} slow"]

    assert slow.reached_when_saved[str(SAVED)] > SAVED
    assert slow.result["step"] == STEPS
    # A state only while the training stands still.
    assert slow.phases == ["TRAINING", "CHECKPOINTING", "EVALUATING", "EXPORTING"]


@pytest.mark.parametrize("method", METHODS)
def test_steps_taken_meanwhile_leave_no_trace_in_it(outcomes, method):
    slow, waiting = (saved_at(outcomes[1][f"{method} {name}"], SAVED) for name in ("slow", "waiting"))

    _check_same(slow, waiting, besides={"trainer_state.json", "training_args.bin"})


@pytest.mark.parametrize("method", METHODS)
def test_files_are_those_of_transformers(outcomes, method):
    plans, found = outcomes
    ours = saved_at(found[f"{method} slow"], SAVED)
    theirs = Path(plans[f"{method} slow"]["spec"]["run_dir"]) / "transformers" / f"checkpoint-{SAVED}"

    _check_same(ours, theirs, besides={"training_args.bin"})


@pytest.mark.parametrize("method", METHODS)
def test_every_checkpoint_is_complete(outcomes, method):
    checkpoints = outcomes[1][f"{method} slow"].checkpoints

    assert checkpoints
    for path in checkpoints:
        manifest = _manifest.verify(path)
        assert f"step-{manifest.step}" == Path(path).name


def _check_same(left: Path, right: Path, *, besides: set[str]) -> None:
    names = {path.name for path in left.iterdir()} - {_manifest.NAME}
    assert names == {path.name for path in right.iterdir()} - {_manifest.NAME}
    for name in names - besides:
        if name.endswith((".pt", ".pth")):
            values = [torch.load(each / name, weights_only=False) for each in (left, right)]
            assert _plain(values[0]) == _plain(values[1]), name
        elif name.endswith(".json"):
            assert json.loads((left / name).read_text()) == json.loads((right / name).read_text()), name
        else:
            assert (left / name).read_bytes() == (right / name).read_bytes(), name


def _plain(value: Any) -> Any:
    """Comparable by ==, tensors by their bits."""
    if isinstance(value, torch.Tensor):
        return value.dtype, value.shape, value.reshape(-1).view(torch.uint8).numpy().tobytes()
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value
