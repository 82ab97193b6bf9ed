"""Answers of language models: equal to plain generation, and to each request alone."""

from collections.abc import Sequence

import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.builders.engine_specs import engine_spec, loaded_engine
from workers.trainers.inference.engine.cache_size import CacheSize
from workers.trainers.inference.engine.continuous import ContinuousBatches
from workers.trainers.inference.engine.equal_lengths import EqualLengths
from workers.trainers.inference.engine.generation import generation_of
from workers.trainers.inference.engine.interface import (
    Completion,
    Interrupted,
    Prompt,
    RequestRefused,
    SamplingParams,
    never,
)
from workers.trainers.inference.engine.sampling import SampledPrompt, Sampler

NEW = 8
GREEDY = SamplingParams(max_new_tokens=NEW)
SAMPLED = SamplingParams(
    max_new_tokens=NEW, temperature=0.9, top_p=0.95, top_k=200, min_p=0.001, repetition_penalty=1.1
)


def with_seeds(prompts: Sequence[list[int]]) -> list[Prompt]:
    return [Prompt(tokens=tokens, seed=number) for number, tokens in enumerate(prompts)]


def plain(directory, tokens, **settings) -> tuple[int, ...]:
    """What `generate` of transformers answers, without the end-of-sequence token."""
    model = AutoModelForCausalLM.from_pretrained(directory).eval()
    found = model.generate(torch.tensor([tokens]), max_new_tokens=NEW, do_sample=False, **settings)
    return tuple(token for token in found[0, len(tokens) :].tolist() if token != model.config.eos_token_id)


def tokens_of(answers) -> list[tuple[int, ...]]:
    assert all(isinstance(each, Completion) for each in answers)
    return [each.tokens for each in answers]


def test_greedy_answers_equal_plain_generation(engine, llama, prompts):
    found = tokens_of(engine.generate(with_seeds(prompts), GREEDY))

    assert found == [plain(llama, tokens) for tokens in prompts]
    assert len(set(found)) > 5


def test_a_repetition_penalty_is_that_of_transformers(engine, llama, prompts):
    sampling = SamplingParams(max_new_tokens=NEW, repetition_penalty=1.4)

    found = tokens_of(engine.generate(with_seeds(prompts[:3]), sampling))

    assert found == [plain(llama, tokens, repetition_penalty=1.4) for tokens in prompts[:3]]


def test_sampled_answers_depend_on_their_own_seed_alone(engine, prompts):
    requests = with_seeds(prompts)
    together = tokens_of(engine.generate(requests, SAMPLED))
    backwards = tokens_of(engine.generate(requests[::-1], SAMPLED))[::-1]
    alone = [tokens_of(engine.generate([each], SAMPLED))[0] for each in requests]
    other_seed = tokens_of(engine.generate([Prompt(tokens=prompts[0], seed=99)], SAMPLED))[0]

    assert together == backwards == alone
    assert other_seed != alone[0]


def test_a_call_repeated_gives_the_same_bits(engine, prompts):
    sampling = SamplingParams(max_new_tokens=NEW, temperature=0.7, logprobs=True)

    assert engine.generate(with_seeds(prompts), sampling) == engine.generate(with_seeds(prompts), sampling)


@pytest.mark.parametrize("size", [CacheSize(96, 16, 4), CacheSize(160, 64, 32)], ids=["split prompts", "preempted"])
def test_a_full_cache_changes_no_answer(engine, tokenizer, prompts, size):
    """Prompts are read in pieces, and requests lose their place and begin again."""
    requests = with_seeds(prompts)
    answer = ContinuousBatches(engine.model, size)
    sampler = Sampler(SAMPLED, tokenizer, {2})

    found = answer([SampledPrompt(each, sampler) for each in requests], never)

    assert tokens_of(found) == tokens_of(engine.generate(requests, SAMPLED))


def test_log_probabilities_are_those_of_the_model(engine, prompts):
    sampling = SamplingParams(max_new_tokens=NEW, temperature=0.5, top_k=3, logprobs=True)

    (found,) = engine.generate([Prompt(tokens=prompts[4], seed=4)], sampling)

    ids = torch.tensor([[*prompts[4], *found.tokens]])
    logits = engine.model(ids).logits[0, len(prompts[4]) - 1 : -1]
    expected = logits.log_softmax(dim=-1).gather(1, ids[0, len(prompts[4]) :].unsqueeze(1)).squeeze(1).tolist()
    assert found.logprobs == pytest.approx(expected, abs=1e-4)


def test_requests_that_do_not_fit_are_refused_and_end_no_other(engine, prompts):
    requests = [[5] * 121, prompts[0], [], [5, 5000], [5] * 120]

    found = engine.generate([Prompt(tokens=tokens) for tokens in requests], GREEDY)

    assert [getattr(each, "code", "") for each in found] == ["CONTEXT_TOO_LONG", "", "EMPTY", "UNKNOWN_TOKEN", ""]
    assert all(number in found[0].message for number in ("121", "8", "128"))


def test_what_the_cache_can_not_hold_is_refused(engine, prompts, monkeypatch):
    small = "workers.trainers.inference.engine.generation.cache_size"
    monkeypatch.setattr(small, lambda *_: CacheSize(96, 16, 4))
    monkeypatch.setattr(engine, "_generation", None)

    long, short = engine.generate([Prompt(tokens=[5] * 89), Prompt(tokens=prompts[0])], GREEDY)

    assert isinstance(long, RequestRefused)
    assert (long.code, "memory for them holds 96" in long.message) == ("CONTEXT_TOO_LONG", True)
    assert isinstance(short, Completion)


def test_an_interrupted_call_ends_at_the_next_step(engine, prompts):
    asked = iter([False, False, True])
    with pytest.raises(Interrupted):
        engine.generate(with_seeds(prompts), GREEDY, lambda: next(asked))

    assert len(engine.generate(with_seeds(prompts), GREEDY)) == len(prompts)


@pytest.mark.parametrize(
    ("kind", "config", "way"),
    [
        (
            "gpt2",
            {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128, "num_key_value_heads": 4},
            ContinuousBatches,
        ),
        ("mistral", {"sliding_window": 16}, ContinuousBatches),
        ("gemma2", {"head_dim": 8, "sliding_window": 16}, EqualLengths),  # its attention is eager
        ("mamba", {"state_size": 8}, EqualLengths),
    ],
)
def test_models_of_other_families_are_served(save_model, tokenizer, prompts, kind, config, way):
    found = loaded_engine(engine_spec(save_model(kind, kind, **config)))
    requests = with_seeds(prompts[:5])

    together = tokens_of(found.generate(requests, SAMPLED))

    assert together == [tokens_of(found.generate([each], SAMPLED))[0] for each in requests]
    assert isinstance(generation_of(found.model, tokenizer, {2}).answer, way)
