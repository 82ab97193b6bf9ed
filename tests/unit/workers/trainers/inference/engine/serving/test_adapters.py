"""Adapters that alternate: each request is answered by its own, and what does not fit is refused."""

import shutil

import pytest
import torch
from peft import PeftModel
from peft.tuners.lora import LoraLayer
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from tests.builders.engine_specs import engine_spec, loaded_engine
from tests.systems.system import wait_for
from tests.unit.workers.trainers.inference.engine.serving.conftest import SECONDS, Asking

pytestmark = [  # what peft says when it writes adapters, and what it asks of transformers
    pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:Setting .save_embedding_layers.:UserWarning"),
]
NEW = 20
NO_END = {2: -100.0}


def plain(base, adapter, tokens) -> tuple[int, ...]:
    """The greedy answer of the model with one adapter alone, without its end."""
    model = AutoModelForCausalLM.from_pretrained(base).eval()
    if adapter is not None:
        model = PeftModel.from_pretrained(model, str(adapter)).eval()
    found = model.generate(input_ids=torch.tensor([tokens]), max_new_tokens=NEW, do_sample=False, bad_words_ids=[[2]])
    return tuple(found[0, len(tokens) :].tolist())


@pytest.fixture
def adapters(llama, save_adapter):
    more = {"target_modules": ["q_proj", "gate_proj", "lm_head"], "r": 8}
    return {
        "one": save_adapter("one", llama),
        "two": save_adapter("two", llama),
        "p/3": save_adapter("3", llama, **more),
    }


@pytest.mark.parametrize("max_loaded", [1, 8])
def test_answers_are_those_of_the_adapter_alone_whatever_else_is_served(serve, llama, adapters, prompts, max_loaded):
    asking = serve(llama, max_loaded=max_loaded)
    asking.adapters.by_name = adapters
    names = [None, "one", "two", "p/3"]
    asked = [(tokens, names[number % 4]) for number, tokens in enumerate(prompts)]

    found = [
        asking.ask(tokens, adapter=name, max_new_tokens=NEW, logit_bias=NO_END, temperature=0) for tokens, name in asked
    ]

    assert [each.wait().tokens for each in found] == [
        plain(llama, adapters.get(name), tokens) for tokens, name in asked
    ]
    assert len({each.tokens for each in found}) == len(found)


def test_adapters_alternate(serve, llama, adapters, prompts):
    asking = serve(llama)
    asking.adapters.by_name = adapters
    long = asking.ask(prompts[0], adapter="one", max_new_tokens=100, logit_bias=NO_END)
    assert long.began.wait(SECONDS)

    short = asking.ask(prompts[1], adapter="two", max_new_tokens=5)

    assert short.wait().last.finish_reason
    assert not long.has_ended.is_set()
    assert len(long.wait().tokens) == 100


def test_others_are_answered_while_an_adapter_is_fetched(serve, llama, adapters, prompts):
    asking = serve(llama)
    asking.adapters.by_name = adapters
    asking.adapters.may_fetch.clear()
    waits = asking.ask(prompts[0], adapter="one")

    assert asking.ask(prompts[1]).wait().last.finish_reason
    assert not waits.began.is_set()
    assert asking.loop.counts.waiting == 1

    asking.adapters.may_fetch.set()
    assert waits.wait().last.finish_reason


def test_a_cancelled_request_waits_for_no_adapter(serve, llama, prompts):
    asking = serve(llama)
    asking.adapters.may_fetch.clear()
    waits = asking.ask(prompts[0], adapter="one")

    waits.handle.cancel()

    assert asking.loop.drain(SECONDS)
    assert not waits.deltas
    asking.adapters.may_fetch.set()


def test_the_least_recently_used_one_makes_room(serve, llama, adapters, prompts):
    asking = serve(llama, max_loaded=2)
    asking.adapters.by_name = adapters

    for name in ("one", "two", "one", "p/3", "one", "two"):
        asking.ask(prompts[0], adapter=name).wait()

    assert asking.adapters.fetched == ["one", "two", "p/3", "two"]


def test_the_model_itself_answers_between_steps_of_an_adapter(serve, llama, adapters, prompts):
    asking = serve(llama)
    asking.adapters.by_name = adapters
    model = asking.loop._engine.model
    ids = torch.tensor([prompts[0]])
    before = model(ids).logits

    long = asking.ask(prompts[0], adapter="one", max_new_tokens=100, logit_bias=NO_END, temperature=0)
    assert long.began.wait(SECONDS)
    after = asking.loop.call(lambda: model(ids).logits).result(SECONDS)

    assert torch.equal(before, after)
    assert long.wait().tokens[:NEW] == plain(llama, adapters["one"], prompts[0])


@pytest.mark.parametrize(
    ("config", "options", "says"),
    [
        ({"r": 16}, {"max_rank": 8}, "rank 16"),
        ({}, {"max_loaded": 0}, "max_loaded"),
        ({"bias": "all"}, {}, "changes weights"),
        ({"modules_to_save": ["lm_head"], "target_modules": ["k_proj"]}, {}, None),
    ],
)
def test_limits_of_the_service_are_kept(serve, llama, save_adapter, prompts, config, options, says):
    asking = serve(llama, **options)
    asking.adapters.by_name["it"] = save_adapter(f"limits-{sorted(config)}", llama, **config)

    last = asking.ask(prompts[0], adapter="it").wait().last

    assert (last.refused is None) == (says is None)
    assert says is None or (last.refused.code == "ADAPTER_NOT_LOADED" and says in last.refused.message)


@pytest.mark.long
def test_what_does_not_fit_the_model_is_refused_and_leaves_it_as_it_was(
    serve, llama, save_model, save_adapter, adapters, prompts, tmp_path
):
    other = save_model("wide", hidden_size=64)
    deep = save_model("deep", num_hidden_layers=3)
    phi = save_model("phi", "phi", num_key_value_heads=4)
    bad = {
        "wide": save_adapter("wide", other),
        "deep": save_adapter("deep", deep),
        "phi": save_adapter("phi", phi, target_modules=["fc1"]),
        "empty": tmp_path,
    }
    asking = serve(llama)
    asking.adapters.by_name = {**bad, **adapters}
    asked = {name: asking.ask(prompts[0], adapter=name) for name in (*bad, "missing")}

    for name, each in asked.items():
        assert each.wait().last.refused is not None, name
        assert each.last.refused.code == "ADAPTER_NOT_LOADED"
    for adapter in (None, "one"):
        good = asking.ask(prompts[1], adapter=adapter, max_new_tokens=NEW, logit_bias=NO_END).wait()
        assert good.tokens == plain(llama, adapters.get(adapter), prompts[1])


def test_a_model_that_is_not_paged_has_adapters_too(serve, save_model, save_adapter, prompts):
    base = save_model("gpt_neo", "gpt_neo", attention_types=[[["global", "local"], 1]], num_layers=2)
    adapter = save_adapter("neo", base)
    asking = serve(base)
    asking.adapters.by_name["neo"] = adapter

    found = [asking.ask(prompts[0], adapter=name, max_new_tokens=NEW, logit_bias=NO_END) for name in (None, "neo")]

    assert found[0].wait().tokens == plain(base, None, prompts[0])
    assert found[1].wait().tokens == plain(base, adapter, prompts[0])


def test_an_adapter_that_brings_other_weights_of_the_model_is_refused(serve, llama, save_adapter, prompts, tmp_path):
    adapter = shutil.copytree(save_adapter("head", llama, target_modules=["lm_head"]), tmp_path / "head")
    asking = serve(llama)
    asking.adapters.by_name["same"] = adapter
    assert asking.ask(prompts[0], adapter="same").wait().last.finish_reason
    changed = shutil.copytree(adapter, tmp_path / "changed")
    weights = load_file(changed / "adapter_model.safetensors")
    key = next(name for name in weights if "base_layer" in name)
    save_file({**weights, key: weights[key] + 1}, changed / "adapter_model.safetensors")
    asking.adapters.by_name["changed"] = changed

    last = asking.ask(prompts[0], adapter="changed").wait().last

    assert "changes weights" in last.refused.message
    assert asking.ask(prompts[0], max_new_tokens=NEW, logit_bias=NO_END).wait().tokens == plain(llama, None, prompts[0])


def test_a_model_that_is_an_adapter_itself_takes_no_others(llama, adapters, prompts):
    spec = engine_spec(llama, weights_path=str(adapters["one"]), inference={"model": {"job_id": "j", "adapter": True}})
    asking = Asking(loaded_engine(spec))
    asking.adapters.by_name = adapters

    own = asking.ask(prompts[0], max_new_tokens=NEW, logit_bias=NO_END).wait()
    other = asking.ask(prompts[0], adapter="two").wait()
    asking.loop.close()

    assert own.tokens == plain(llama, adapters["one"], prompts[0])
    assert other.last.refused is not None
    assert "adapter itself" in other.last.refused.message


@pytest.mark.parametrize("loaded", [(), ("one",)])
@pytest.mark.parametrize("failures", [1, 2])
def test_an_adapter_without_memory_takes_that_of_unused_ones_or_is_refused(
    serve, llama, adapters, prompts, monkeypatch, loaded, failures
):
    asking = serve(llama)
    asking.adapters.by_name = adapters
    for name in loaded:
        asking.ask(prompts[0], adapter=name).wait()
    places, update = [failures], LoraLayer.reset_lora_parameters

    def fails_at_the_third(layer, *args, **options):
        calls.append(layer)
        if places[0] and len(calls) == 3:
            places[0] -= 1
            calls.clear()
            raise torch.OutOfMemoryError
        return update(layer, *args, **options)

    calls = []
    monkeypatch.setattr(LoraLayer, "reset_lora_parameters", fails_at_the_third)
    asked = asking.ask(prompts[0], adapter="two", max_new_tokens=NEW, logit_bias=NO_END).wait()

    if failures == 1:
        assert asked.tokens == plain(llama, adapters["two"], prompts[0])
    else:
        assert asked.last.refused.code == "ADAPTER_NOT_LOADED"
    for name in (None, "one", "two"):
        again = asking.ask(prompts[0], adapter=name, max_new_tokens=NEW, logit_bias=NO_END).wait()
        assert again.tokens == plain(llama, adapters.get(name), prompts[0])


def test_adapter_that_was_removed_before_it_could_be_loaded_is_fetched_again(serve, llama, adapters, prompts):
    asking = serve(llama, max_loaded=1)
    gone = adapters["two"].with_name("gone")
    asking.adapters.by_name = {**adapters, "two": gone}
    long = asking.ask(prompts[0], adapter="one", max_new_tokens=100, logit_bias=NO_END)
    assert long.began.wait(SECONDS)
    waits = asking.ask(prompts[1], adapter="two", max_new_tokens=5)
    wait_for(lambda: "two" in asking.adapters.fetched, seconds=10, what="it is fetched")
    asking.adapters.by_name = adapters

    assert waits.wait().last.finish_reason
    assert asking.adapters.fetched == ["one", "two", "two"]
    long.wait()
