"""Every recipe is a job that a cluster of the hardware that it names accepts and can hold."""

import pytest

from app.cli.client.recipes.submit import filled_in
from app.domain.memory.estimate import estimate
from app.domain.memory.known_models import known_config
from app.schemas.jobs import SubmitJobSchema
from app.services.recipes import Recipe, recipes
from tests.builders.factories import make_node
from tests.systems.apps import Api

DRY = "/v1/jobs?dry_run=true"
# A card of each size, with the memory that its driver reports.
CARDS = {24: ("l4", 23034), 48: ("l40s", 46068), 80: ("h100", 81559)}
CAPABILITIES = ["deepspeed"]
RECIPES = recipes()
MEBIBYTE = 2**20
# The rest is for what the estimate does not know: fragments, kernels' workspaces, another version of torch.
MOST = 0.85

of_each = pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)


@of_each
def test_recipe_is_accepted_and_placed_on_its_hardware_alone(sqlite_api: Api, recipe: Recipe):
    card, memory_mb = CARDS[recipe.gpu_memory_gb]
    capacity = {"ram_mb": 2 << 20, "cpu_cores": 64, "storage_mb": 4 << 20, "capabilities": CAPABILITIES}
    with sqlite_api.db.write() as session:
        make_node(
            session,
            "meant",
            devices=recipe.gpu_count,
            device_type=card,
            memory_mb=memory_mb,
            simulated=True,
            **capacity,
        )
        make_node(session, "small", devices=8, device_type="t4", memory_mb=15360, simulated=True, **capacity)

    answer = sqlite_api.data(sqlite_api.post(DRY, filled_in(recipe, ("/srv/train.jsonl",))))

    assert answer["warnings"] == []
    assert [node["name"] for node in answer["plan"]["candidate_nodes"]] == ["meant"]
    assert (answer["plan"]["devices"], answer["plan"]["device_type"]) == (recipe.gpu_count, "cuda")


@of_each
def test_recipe_fits_the_memory_that_it_names(recipe: Recipe):
    _, memory_mb = CARDS[recipe.gpu_memory_gb]
    document = SubmitJobSchema().load(filled_in(recipe, ("/srv/train.jsonl",)))

    config = known_config(recipe.model)
    assert config is not None

    found = estimate(document, config, device_count=recipe.gpu_count)

    assert found.is_known, found.reason
    assert found.total_bytes <= MOST * memory_mb * MEBIBYTE, {k: v // MEBIBYTE for k, v in found.parts.items()}
    assert document.resource_config.gpu_memory_min_mb <= memory_mb


def test_methods_families_and_hardware_are_covered():
    assert {recipe.method for recipe in RECIPES} == {"SFT", "LORA", "QLORA", "DPO", "GRPO", "CONTINUED_PRETRAIN"}
    assert {recipe.family for recipe in RECIPES} == {"llama", "qwen", "mistral", "gemma", "phi"}
    assert {recipe.gpu_memory_gb for recipe in RECIPES if recipe.gpu_count == 1} == {24, 48, 80}
    assert {recipe.framework for recipe in RECIPES if recipe.gpu_count == 8} == {"FSDP", "DEEPSPEED"}
