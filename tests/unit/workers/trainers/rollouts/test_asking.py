"""Completions by rollouts are those of the model itself: however many there are, and when they are started again."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import GenerationConfig

from tests.unit.workers.trainers.rollouts.asking import ENDS, GREEDY, SAMPLED, a_model, asking, prompts_of
from workers.trainers.hf_trainer.methods.completions import seeded
from workers.trainers.inference.engine.interface import Prompt
from workers.trainers.rollouts import weights
from workers.trainers.rollouts.client import RolloutClient
from workers.trainers.rollouts.completer import Completer, SamplingOptions
from workers.trainers.rollouts.places import own_place, places_to_ask, port_file
from workers.trainers.rollouts.rollouts import split
from workers.trainers.rollouts.weights import OtherModel, Weights, trained

pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")


def test_greedy_completions_are_those_of_generate(tokenizer, spec):
    model: Any = a_model()
    model.train()
    settings = model.generation_config
    prompts = prompts_of(spec)

    found = Completer(model, tokenizer, spec)(prompts, GREEDY)

    assert model.training
    assert model.model.layers[0].training
    assert model.generation_config is settings
    model.eval()
    for prompt, tokens in zip(prompts, found, strict=True):
        ids = torch.tensor([list(prompt.tokens)])
        config = GenerationConfig(do_sample=False, max_new_tokens=6, eos_token_id=1, pad_token_id=2)
        assert list(tokens) == model.generate(ids, generation_config=config)[0, ids.shape[1] :].tolist()
    assert any(tokens[-1] in ENDS for tokens in found) or {len(tokens) for tokens in found} == {6}


def test_end_token_is_part_of_a_completion(tokenizer, spec):
    model = a_model()
    ends = tuple(range(3, 12))

    found = Completer(model, tokenizer, spec)(prompts_of(spec), SamplingOptions(**{**vars(SAMPLED), "ends": ends}))

    assert any(tokens[-1] in ends for tokens in found)
    assert all(token not in ends for tokens in found for token in tokens[:-1])


def test_completion_has_a_seed_of_its_own(spec):
    rows = [[3]] * 4
    first, second = seeded(spec, rows[:2], "train", 7, 0), seeded(spec, rows[2:], "train", 7, 2)

    assert seeded(spec, rows, "train", 7, 0) == [*first, *second]
    assert len({each.seed for each in seeded(spec, rows, "train", 7, 0)}) == 4
    assert seeded(spec, rows, "eval", 7, 0) != seeded(spec, rows, "train", 7, 0) != seeded(spec, rows, "train", 8, 0)


@pytest.mark.parametrize("instances", [[1], [1, 1], [2, 1]])
def test_rollouts_answer_with_the_weights_of_the_training(start, tokenizer, spec, instances):
    """Instances of so many ranks."""
    model = a_model()
    prompts = prompts_of(spec)
    expected = [list(each) for each in Completer(model, tokenizer, spec)(prompts, SAMPLED)]
    places = [start(*map(a_model, range(1, ranks + 1)), index=index) for index, ranks in enumerate(instances)]
    rollouts = asking(*places)

    found, handed = rollouts.complete(prompts, SAMPLED, Weights("0.0", model))

    assert found == expected
    assert handed.bytes == sum(instances) * sum(each.numel() * 4 for each in model.parameters())
    again, handed = rollouts.complete(prompts, SAMPLED, Weights("0.0", model))
    assert again == expected
    assert handed.bytes == 0
    rollouts.close()


def test_each_version_replaces_the_one_before(start, tokenizer, spec):
    model, prompts = a_model(), prompts_of(spec)
    rollouts = asking(start(a_model(1)))
    rollouts.complete(prompts, SAMPLED, Weights("0.0", model))
    for parameter in model.parameters():
        parameter.data *= -1

    found, _ = rollouts.complete(prompts, SAMPLED, Weights("1.0", model))

    assert found == [list(each) for each in Completer(model, tokenizer, spec)(prompts, SAMPLED)]
    rollouts.close()


def test_adapter_is_all_that_is_sent(start, tokenizer, spec):
    config = LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False)
    model, other = get_peft_model(a_model(), config), get_peft_model(a_model(), config)
    prompts = prompts_of(spec)
    rollouts = asking(start(other))

    found, handed = rollouts.complete(prompts, SAMPLED, Weights("0.0", model))

    assert found == [list(each) for each in Completer(model, tokenizer, spec)(prompts, SAMPLED)]
    assert handed.bytes == sum(each.numel() * 4 for each in trained(model).values())
    rollouts.close()


def test_divided_weights_of_which_none_is_frozen_are_handed_over_to_any_kind_of_devices(start, tokenizer, spec):
    """Their digest is made for the rollouts that are expected, on GPUs here."""
    model, prompts = a_model(), prompts_of(spec)
    rollouts = asking(start(a_model(1)))

    given = Weights("0.0", model, {"bfloat16": ""}, gathered=dict(model.named_parameters()))
    found, _ = rollouts.complete(prompts, SAMPLED, given)

    assert found == [list(each) for each in Completer(model, tokenizer, spec)(prompts, SAMPLED)]
    of_a_base = Weights("1.0", model, {"bfloat16": "of a base"}, gathered=dict(model.named_parameters()))
    with pytest.raises(OtherModel, match="devices of one kind"):
        rollouts.complete(prompts, SAMPLED, of_a_base)
    rollouts.close()


def test_base_model_is_read_once_for_all_steps(start, spec, monkeypatch):
    config = LoraConfig(r=2, target_modules=["q_proj"])
    model = get_peft_model(a_model(), config)
    digests: dict[str, str] = {}
    rollouts = asking(start(get_peft_model(a_model(), config)))
    rollouts.complete(prompts_of(spec), SAMPLED, Weights("0.0", model, digests))
    monkeypatch.setattr(weights, "frozen_digest", lambda *_: pytest.fail("it was read again"))

    assert rollouts.complete(prompts_of(spec), SAMPLED, Weights("1.0", model, digests))[1].bytes
    rollouts.close()


def test_rank_that_does_not_lead_hands_over_what_a_new_rollout_lacks(start, spec):
    """The rank that leads has its completions already, and asks no more in this step."""
    model, prompts = a_model(), prompts_of(spec)
    expected, _ = (leader := asking(start(a_model(1)))).complete(prompts, SAMPLED, Weights("3.0", model))
    follower = asking(start(a_model(2)), rank=1)

    found, handed = follower.complete(prompts, SAMPLED, Weights("3.0", model))

    assert found == expected
    assert handed.bytes
    leader.close()
    follower.close()


def test_copies_of_weights_are_freed_and_made_again_for_a_rollout_that_lacks_them(start, spec):
    weights, prompts = Weights("3.0", a_model()), prompts_of(spec)
    expected, _ = (first := asking(start(a_model(1)))).complete(prompts, SAMPLED, weights)

    assert weights._copies
    weights.drop_copies()
    assert not weights._copies
    found, handed = (second := asking(start(a_model(2)))).complete(prompts, SAMPLED, weights)
    assert found == expected
    assert handed.bytes
    first.close()
    second.close()


def test_ranks_with_few_prompts_ask_different_rollouts(start, spec, monkeypatch):
    model, places = a_model(), [start(a_model(1), index=index) for index in range(2)]
    asked: list[int] = []
    complete = RolloutClient.complete

    def noted(self: RolloutClient, prompts: Sequence[Prompt], *given: Any) -> list[list[int]]:
        asked.extend(self.place.index for _ in prompts)
        return complete(self, prompts, *given)

    monkeypatch.setattr(RolloutClient, "complete", noted)

    for rank in range(2):
        rollouts = asking(*places, rank=rank)
        rollouts.complete(prompts_of(spec, 1), SAMPLED, Weights("0.0", model))
        rollouts.close()

    assert asked == [0, 1]


@pytest.mark.parametrize(("count", "parts", "sizes"), [(7, 3, [3, 2, 2]), (2, 3, [1, 1, 0]), (6, 2, [3, 3])])
def test_prompts_are_split_in_order(spec, count, parts, sizes):
    prompts = prompts_of(spec, count)
    found: Sequence[Sequence[Prompt]] = split(prompts, parts)

    assert [len(each) for each in found] == sizes
    assert [prompt for part in found for prompt in part] == prompts


def test_places_come_from_the_environment(tmp_path):
    tasks = '{"gen": [{"index": 1, "address": "10.0.0.2", "port": 8}, {"index": 0, "address": "10.0.0.1", "port": 7}]}'
    rollout = {"TRAINYARD_TASKS": tasks, "TRAINYARD_ROLE": "gen", "TRAINYARD_TASK_INDEX": "1"}

    assert places_to_ask({}) == []
    assert [str(each) for each in places_to_ask({"TRAINYARD_TASKS": tasks, "TRAINYARD_ROLLOUT_ROLE": "gen"})] == [
        "gen 0 at 10.0.0.1:7",
        "gen 1 at 10.0.0.2:8",
    ]
    assert own_place(rollout).port == 8
    assert port_file(tmp_path, own_place(rollout), 2) == tmp_path / "rollouts" / "gen-1-2.port"
