"""The memory estimate against torch: parameters of each type of model, and the bytes that live at a training's peak."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from app.domain.memory.architecture import architecture_of
from app.domain.memory.families import FAMILIES
from tests.trainers.forked import rank_environment, start_rank
from tests.trainers.memory_cases import CASES
from tests.trainers.supervision import wait_for_all

_LAYERS = {"num_hidden_layers": 3}
# What differs from the defaults in ways that decide on the number of parameters.
_CHANGES = {
    "llama": {"attention_bias": True, "mlp_bias": True, "num_key_value_heads": 8, "tie_word_embeddings": True},
    "qwen3_moe": {"mlp_only_layers": [1]},
    "gpt2": {"n_inner": 1000},
    "gpt_neox": {"attention_bias": False},
}
TOLERANCE = 0.10


@pytest.mark.parametrize("changes", [{}, _CHANGES], ids=["default", "changed"])
@pytest.mark.parametrize("kind", FAMILIES)
def test_parameters_are_those_of_transformers(kind: str, changes: dict[str, dict[str, Any]]):
    config = CONFIG_MAPPING[kind](**{**_LAYERS, **changes.get(kind, {})})
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)

    found = architecture_of(config.to_dict())

    assert found.parameters == sum(parameter.numel() for parameter in model.parameters())


@pytest.fixture(scope="module")
def peaks(tmp_path_factory: pytest.TempPathFactory, demo_assets: Path) -> tuple[Path, dict[str, int]]:
    """The directory of all runs, and the bytes of tensors at the peak of each."""
    directory = tmp_path_factory.mktemp("memory")
    plans = {name: case.plan(directory / name, demo_assets) for name, case in CASES.items()}
    file = directory / "plan.json"
    file.write_text(json.dumps(plans))
    log = directory / "log"
    process = start_rank(
        ["tests.trainers.tracked_memory", str(file)],
        [plan["spec"] for plan in plans.values()],
        environment=rank_environment(0, 1, 0),
        cwd=directory,
        log=log,
    )
    assert wait_for_all([process], 900) == [0], log.read_text()[-4000:]
    return directory, json.loads(file.with_suffix(".peaks").read_text())


@pytest.mark.long
@pytest.mark.timeout(1000)  # the first test waits for all trainings
@pytest.mark.parametrize("name", CASES)
def test_peak_is_within_a_tenth_of_the_estimate(name: str, peaks: tuple[Path, dict[str, int]]):
    directory, found = peaks

    estimated = CASES[name].estimated(directory / name)

    assert estimated.reason == ""
    assert sum(estimated.parts.values()) == estimated.total_bytes
    assert estimated.total_bytes == pytest.approx(found[name], rel=TOLERANCE)
