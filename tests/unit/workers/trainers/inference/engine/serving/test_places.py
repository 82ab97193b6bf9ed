"""Places for requests: in memory, in batches, and beside a request whose numbers are not finite."""

import pytest
import torch

from tests.unit.workers.trainers.inference.engine.serving.conftest import SECONDS
from workers.trainers.inference.engine.cache_size import PAGE, CacheSize
from workers.trainers.inference.serving.loaded_adapters import LoadedAdapters
from workers.trainers.inference.serving.paged_schedule import PagedSchedule

BROKEN = 77  # a token whose embedding is not a number
NO_END = {2: -100.0}
KINDS = [
    ("llama", {}),
    ("mistral", {"sliding_window": 16}),
    ("gpt_neo", {"attention_types": [[["global", "local"], 1]], "num_layers": 2}),
]


@pytest.fixture(params=KINDS, ids=[kind for kind, _ in KINDS])
def directory(request, save_model):
    """A model that is paged, and one that is not."""
    kind, config = request.param
    return save_model(f"{kind}-for-places", kind, **config)


def test_more_requests_than_memory_holds_wait_for_room(serve, llama, prompts):
    asking = serve(llama)
    alone = [asking.ask(tokens).wait().tokens for tokens in prompts]
    loop = asking.loop
    small = CacheSize(tokens=4 * PAGE, step_tokens=256, requests=32)
    adapters = LoadedAdapters(loop._engine.model, most=0, max_rank=0)
    loop.call(lambda: setattr(loop, "_schedule", PagedSchedule(loop._engine.model, small, 128, adapters))).result(
        SECONDS
    )

    found = [asking.ask(tokens) for tokens in prompts * 3]

    assert [each.wait().tokens for each in found] == alone * 3


def test_many_requests_come_and_end(serve, directory, prompts):
    asking = serve(directory, max_waiting=200)
    expected = [asking.ask(tokens, seed=7, temperature=1.0).wait().tokens for tokens in prompts]

    found = [asking.ask(tokens, seed=7, temperature=1.0) for tokens in prompts * 8]
    for each in found[::3]:
        each.handle.cancel()

    kept = [(place, each) for place, each in enumerate(found) if place % 3]
    assert all(each.wait().tokens == expected[place % len(prompts)] for place, each in kept)
    assert asking.loop.drain(SECONDS)
    assert (asking.loop.counts.in_flight, asking.loop.counts.waiting) == (0, 0)


def test_a_cancelled_request_ends_while_others_go_further(serve, directory, prompts):
    asking = serve(directory)
    first, second = [asking.ask(prompts[0], max_new_tokens=60, logit_bias=NO_END, seed=seed) for seed in (1, 2)]
    assert first.began.wait(SECONDS)

    first.handle.cancel()

    assert second.wait().last.finish_reason == "length"
    assert not first.has_ended.is_set()
    assert asking.loop.drain(SECONDS)


def test_closing_does_not_wait_for_answers(serve, directory, prompts):
    asking = serve(directory)
    asked = [asking.ask(prompts[0], max_new_tokens=110, logit_bias=NO_END) for _ in range(3)]
    assert asked[0].began.wait(SECONDS)

    asking.loop.close()

    assert all(each.has_ended.is_set() for each in asked)


def test_only_the_request_whose_numbers_are_not_finite_is_refused(serve, save_model, prompts):
    asking = serve(save_model("llama-untied"))
    expected = [asking.ask(tokens, max_new_tokens=20).wait().tokens for tokens in prompts[:4]]
    embedding = asking.loop._engine.model.get_input_embeddings().weight
    with torch.no_grad():
        embedding[BROKEN] = torch.nan

    good = [asking.ask(tokens, max_new_tokens=20) for tokens in prompts[:2]]
    broken = [asking.ask([5, BROKEN, 7, 8]) for _ in range(2)]
    good += [asking.ask(tokens, max_new_tokens=20) for tokens in prompts[2:4]]

    assert [each.wait().last.refused.code for each in broken] == ["NOT_FINITE"] * 2
    assert [each.wait().tokens for each in good] == expected
    assert asking.ask(prompts[0], max_new_tokens=20).wait().tokens == expected[0]
