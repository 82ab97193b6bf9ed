"""The engine of a job that asks a service: the same answers as its model gives, by a real replica."""

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import AutoModel

from tests.builders.engine_specs import engine_spec, loaded_engine
from tests.unit.workers.trainers.inference.server.socket_client import Replica
from workers.rank.run_context import NotAnswered
from workers.trainers.failures import InvalidConfig
from workers.trainers.inference.engine.interface import (
    Continuation,
    Interrupted,
    Pooling,
    Prompt,
    RequestRefused,
    SamplingParams,
)
from workers.trainers.inference.engine.refusing import CONTEXT_TOO_LONG
from workers.trainers.inference.engine.service_engine import AT_A_TIME, ServiceEngine, ServiceUnavailable
from workers.trainers.inference.engines import load_engine

PROMPTS = [Prompt(tokens=tuple(range(5, 6 + number)), seed=number) for number in range(1, 40)]


def asking(replica: Replica, bodies: list[Mapping[str, Any]] | None = None) -> Callable[..., dict[str, Any]]:
    """As `RunContext.ask`, without a supervisor and a gateway."""

    def ask(path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        if bodies is not None:
            bodies.append(body)
        answer = replica.ask(path, body)
        if answer.status != 200:
            raise NotAnswered(answer.error["message"], answer.status)
        return dict(answer.json)

    return ask


def service_engine(model: Path, ask: Callable[..., dict[str, Any]], task: str = "generate") -> Any:
    found = load_engine(engine_spec(model, task, inference={"model": {"service": "tiny"}}), ask)
    assert isinstance(found, ServiceEngine)
    return found


def never_asked(path: str, body: Mapping[str, Any]) -> dict[str, Any]:
    raise AssertionError(f"{path} is asked for {body}")


def test_answers_are_those_of_the_model_and_prompts_share_requests(llama: Path, replica: Replica) -> None:
    bodies: list[Mapping[str, Any]] = []
    engine, own = service_engine(llama, asking(replica, bodies)), loaded_engine(engine_spec(llama))
    sampling = SamplingParams(max_new_tokens=6, repetition_penalty=1.1, logprobs=True)

    found, expected = engine.generate(PROMPTS, sampling), own.generate(PROMPTS, sampling)

    assert [(each.text, each.finish_reason, len(each.tokens)) for each in found] == [
        (each.text, each.finish_reason, len(each.tokens)) for each in expected
    ]
    for one, other in zip(found, expected, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)
    assert sorted(len(body["prompt"]) for body in bodies) == [len(PROMPTS) % AT_A_TIME, AT_A_TIME, AT_A_TIME]
    assert engine.context_length == own.context_length


def test_sampled_answers_are_functions_of_their_seeds(llama: Path, replica: Replica) -> None:
    engine = service_engine(llama, asking(replica))
    sampling = SamplingParams(max_new_tokens=6, temperature=1.0)

    first, again = engine.generate(PROMPTS[:6], sampling), engine.generate(PROMPTS[3:6], sampling)

    assert first[3:] == again


def test_what_is_wrong_is_refused_alone(llama: Path, replica: Replica) -> None:
    engine = service_engine(llama, asking(replica))
    long = Prompt(tokens=(5,) * 10_000)

    found = engine.generate([PROMPTS[0], long, PROMPTS[1]], SamplingParams(max_new_tokens=4))
    too_many = engine.generate(PROMPTS[:2], SamplingParams(max_new_tokens=100))

    assert [type(each) is RequestRefused for each in found] == [False, True, False]
    assert found[1].code == CONTEXT_TOO_LONG
    assert all(isinstance(each, RequestRefused) and "64" in each.message for each in too_many), (
        "the limit of the service"
    )


def test_vectors_are_those_of_the_model(run_replica: Callable[..., Replica], save_model: Callable[..., Path]) -> None:
    directory = save_model("vectors", kind="bert", of=AutoModel)
    embedder = run_replica(directory, task="embed")
    engine, own = service_engine(directory, asking(embedder), "embed"), loaded_engine(engine_spec(directory, "embed"))
    texts = [tuple(range(5, 6 + number)) for number in range(1, 20)]

    found, expected = engine.embeddings(texts, Pooling()), own.embeddings(texts, Pooling())

    for one, other in zip(found, expected, strict=True):
        assert one.dtype == np.float32
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_a_service_that_does_not_answer_ends_the_job(llama: Path) -> None:
    def ask(path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        raise NotAnswered("no replica of tiny has answered within 180 s", 503)

    with pytest.raises(ServiceUnavailable, match=r"tiny does not answer \(503\): no replica") as failure:
        service_engine(llama, ask).generate(PROMPTS, SamplingParams(max_new_tokens=4))

    assert failure.value.error_type == "NETWORK_ERROR"


@pytest.mark.parametrize(("status", "raised"), [(409, ServiceUnavailable), (404, InvalidConfig), (499, Interrupted)])
def test_what_no_request_can_be_blamed_for_ends_the_attempt(llama: Path, status: int, raised: type[Exception]) -> None:
    def ask(path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        raise NotAnswered("there is no service tiny", status)

    with pytest.raises(raised):
        service_engine(llama, ask).generate(PROMPTS, SamplingParams(max_new_tokens=4))


def test_an_answer_that_fails_is_that_of_its_prompt_alone(llama: Path, replica: Replica) -> None:
    answer = asking(replica)

    def ask(path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        if list(PROMPTS[1].tokens) in body["prompt"]:
            raise NotAnswered("the answer is not finite", 500)
        return answer(path, body)

    found = service_engine(llama, ask).generate(PROMPTS[:3], SamplingParams(max_new_tokens=4))

    assert [type(each) is RequestRefused for each in found] == [False, True, False]


def test_a_stop_does_not_wait_for_the_service(llama: Path) -> None:
    begun, over = threading.Event(), threading.Event()

    def ask(path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        begun.set()
        over.wait(30)
        raise NotAnswered("the run ends", 499)

    with pytest.raises(Interrupted):
        service_engine(llama, ask).generate(PROMPTS, SamplingParams(max_new_tokens=4), begun.is_set)

    over.set()


def test_what_services_do_not_give_is_refused(llama: Path) -> None:
    engine = service_engine(llama, never_asked)

    with pytest.raises(InvalidConfig, match="gives no likelihoods"):
        engine.likelihoods([Continuation(context=(1,), tokens=(2,))])
    with pytest.raises(InvalidConfig, match="gives no scores"):
        engine.scores([(1, 2)])
    with pytest.raises(InvalidConfig, match="response_format"):
        engine.generate(
            PROMPTS, SamplingParams(max_new_tokens=4, response_format={"type": "json_schema", "schema": {}})
        )
