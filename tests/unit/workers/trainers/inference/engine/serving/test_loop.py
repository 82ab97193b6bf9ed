"""The loop: answers equal to plain generation and to the request alone, whatever else is served."""

import threading
from concurrent.futures import CancelledError
from typing import Any

import pytest

from tests.builders.engine_specs import engine_spec, loaded_engine
from tests.unit.workers.trainers.inference.engine.serving.conftest import SECONDS
from workers.trainers.failures import InvalidConfig
from workers.trainers.inference.engine.interface import Prompt, SamplingParams
from workers.trainers.inference.serving.requests import Closed, GenerationRequest, NeverFits, QueueFull

SAMPLED = {"temperature": 0.9, "top_p": 0.95, "top_k": 200}
VARIANTS: tuple[dict[str, Any], ...] = (
    {},
    SAMPLED,
    {**SAMPLED, "repetition_penalty": 1.2},
    {"temperature": 1.3, "min_p": 0.01},
)


def wait(begun: threading.Event, stop: threading.Event, seconds: float) -> None:
    """Hold the loop up."""
    begun.set()
    stop.wait(seconds)


@pytest.mark.parametrize("kind", ["llama", "gpt_neo"])
def test_greedy_answers_equal_plain_generation(serve, save_model, prompts, kind):
    sizes = {"attention_types": [[["global", "local"], 1]], "num_layers": 2} if kind == "gpt_neo" else {}
    directory = save_model(kind, kind, **sizes)
    plain = loaded_engine(engine_spec(directory)).generate(
        [Prompt(tokens=tokens) for tokens in prompts], SamplingParams(max_new_tokens=8)
    )
    asking = serve(directory)

    found = [each.wait() for each in [asking.ask(tokens) for tokens in prompts]]

    assert [each.tokens for each in found] == [each.tokens for each in plain]
    assert [each.text for each in found] == [each.text for each in plain]
    assert [each.last.finish_reason for each in found] == [each.finish_reason for each in plain]


def test_each_request_has_its_own_sampling_and_gives_what_it_gives_alone(serve, llama, prompts):
    asking = serve(llama)
    requests = [(tokens, number, VARIANTS[number % len(VARIANTS)]) for number, tokens in enumerate(prompts)]

    alone = [asking.ask(tokens, seed=seed, **options).wait().tokens for tokens, seed, options in requests]
    together = [asking.ask(tokens, seed=seed, **options) for tokens, seed, options in requests[::-1]][::-1]

    assert [each.wait().tokens for each in together] == alone
    assert asking.ask(prompts[1], seed=99, **SAMPLED).wait().tokens != alone[1]


def test_texts_of_deltas_are_the_answer_in_whole_characters(serve, llama, prompts):
    asking = serve(llama)

    found = asking.ask(prompts[0], max_new_tokens=60, temperature=1.5, logprobs=True, top_logprobs=2).wait()

    whole = loaded_engine(engine_spec(llama)).generate(
        [Prompt(tokens=prompts[0])], SamplingParams(max_new_tokens=60, temperature=1.5, logprobs=True)
    )[0]
    assert (found.text, found.tokens) == (whole.text, whole.tokens)
    infos = [token for delta in found.deltas for token in delta.tokens]
    assert [each.logprob for each in infos] == pytest.approx(whole.logprobs, abs=1e-4)
    assert all(len(each.top) == 2 and each.top[0][1] >= each.top[1][1] for each in infos)
    assert len(found.deltas) > 10


def test_nothing_of_a_stop_text_is_delivered(serve, llama, prompts):
    asking = serve(llama)
    text = asking.ask(prompts[2], max_new_tokens=30).wait().text
    stop = text[5:8]

    found = asking.ask(prompts[2], max_new_tokens=30, stop=(stop,)).wait()

    assert found.text == text[: text.index(stop)]
    assert found.last.finish_reason == "stop"
    assert len(found.tokens) < 30


def test_what_does_not_fit_the_context_is_refused_with_the_numbers_and_others_are_answered(serve, llama, prompts):
    asking = serve(llama, max_context=40)

    refused = asking.ask([5] * 35, max_new_tokens=8)
    unknown = asking.ask([5, 4000])
    answered = asking.ask(prompts[0])

    assert answered.wait().last.finish_reason
    message = refused.wait().last.refused.message
    assert refused.last.refused.code == "CONTEXT_TOO_LONG"
    assert all(number in message for number in ("35", "8", "40"))
    assert unknown.wait().last.refused.code == "UNKNOWN_TOKEN"


def test_a_cancelled_request_gives_its_place_away_and_says_no_more(serve, llama, prompts):
    asking = serve(llama)
    cancelled = asking.ask(prompts[0], max_new_tokens=100, logit_bias={2: -100})
    assert cancelled.began.wait(SECONDS)

    cancelled.handle.cancel()
    asking.ask(prompts[1]).wait()
    said = len(cancelled.deltas)

    assert asking.loop.drain(SECONDS)
    assert len(cancelled.deltas) == said
    assert not cancelled.has_ended.is_set()


def test_a_request_too_many_is_not_accepted(serve, llama, prompts):
    asking = serve(llama, max_waiting=0)
    stop, begun = threading.Event(), threading.Event()
    asking.loop.call(lambda: wait(begun, stop, SECONDS))
    assert begun.wait(SECONDS)
    accepted = [asking.ask(prompts[0]) for _ in range(31)]  # the call is one, too

    with pytest.raises(QueueFull):
        asking.ask(prompts[0])
    with pytest.raises(QueueFull):
        asking.loop.call(int)

    assert (asking.loop.counts.in_flight, asking.loop.counts.waiting) == (1, 31)
    stop.set()
    assert all(each.wait().last.finish_reason for each in accepted)
    assert asking.loop.drain(SECONDS)
    assert (asking.loop.counts.in_flight, asking.loop.counts.waiting) == (0, 0)


def test_answers_begin_together_or_not_at_all(serve, llama, prompts):
    asking = serve(llama, max_waiting=0)
    request = GenerationRequest(prompt=tuple(prompts[0]), sampling=SamplingParams(max_new_tokens=4))
    stop, begun = threading.Event(), threading.Event()
    asking.loop.call(lambda: wait(begun, stop, SECONDS))
    assert begun.wait(SECONDS)

    with pytest.raises(QueueFull):
        asking.loop.submit_all([(request, print)] * 32)
    with pytest.raises(NeverFits, match="33 answers"):
        asking.loop.submit_all([(request, print)] * 33)

    assert asking.loop.counts.waiting == 0
    stop.set()


def test_draining_finishes_what_is_there_and_takes_nothing_new(serve, llama, prompts):
    asking = serve(llama)
    asked = [asking.ask(tokens) for tokens in prompts]

    assert asking.loop.drain(SECONDS)

    assert all(each.last.finish_reason for each in asked)
    with pytest.raises(Closed):
        asking.ask(prompts[0])
    with pytest.raises(Closed):
        asking.loop.call(int)


def test_closing_refuses_what_is_not_answered(serve, llama, prompts):
    asking = serve(llama)
    asked = [asking.ask(tokens, max_new_tokens=90, logit_bias={2: -100}) for tokens in prompts]
    assert asked[0].began.wait(SECONDS)

    asking.loop.close()

    assert all(each.has_ended.is_set() for each in asked)
    assert any(each.last.refused and each.last.refused.code == "ENGINE_ENDED" for each in asked)


def test_functions_run_between_steps_and_their_errors_are_the_callers(serve, llama, prompts):
    asking = serve(llama)
    asked = asking.ask(prompts[0], max_new_tokens=40)

    assert asking.loop.call(lambda: threading.current_thread().name).result(SECONDS) == "generation"
    with pytest.raises(ZeroDivisionError):
        asking.loop.call(lambda: 1 / 0).result(SECONDS)

    assert asked.wait().last.finish_reason


def test_an_error_of_the_engine_ends_the_loop_and_leaves_nothing_without_a_word(serve, llama, prompts, monkeypatch):
    asking = serve(llama)

    def fails(*_args, **_options):
        raise RuntimeError("no memory for this step")

    monkeypatch.setattr(asking.loop._engine.model, "forward", fails)
    asked = asking.ask(prompts[0])

    assert asked.wait().last.refused.code == "ENGINE_ENDED"
    assert not asking.loop.drain(0) or asking.loop.error is not None
    with pytest.raises(Closed):
        asking.ask(prompts[0])


def test_steps_and_tokens_are_counted(serve, llama, prompts):
    asking = serve(llama)

    asked = [asking.ask(tokens, logit_bias={2: -100}) for tokens in prompts]
    for each in asked:
        each.wait()
    asking.loop.drain(SECONDS)

    assert asking.steps[-1].tokens == 8 * len(prompts)
    assert 8 <= asking.steps[-1].steps == len(asking.steps)


def test_a_format_that_cant_be_applied_is_the_requests_fault(serve, llama, prompts):
    asking = serve(llama)

    with pytest.raises(InvalidConfig, match="pattern"):
        asking.ask(prompts[0], response_format={"type": "regex", "pattern": ""})
    structured = asking.ask(prompts[0], response_format={"type": "regex", "pattern": "[ab]{3}"})

    assert set(structured.wait().text) <= {"a", "b"}


def test_calls_that_never_ran_are_cancelled(serve, llama):
    asking = serve(llama)
    begun = threading.Event()
    asking.loop.call(lambda: wait(begun, threading.Event(), 0.3))
    assert begun.wait(SECONDS)
    late = asking.loop.call(int)

    asking.loop.close()

    with pytest.raises(CancelledError):
        late.result(SECONDS)
