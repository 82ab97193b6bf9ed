"""Embeddings over the socket of a replica."""

import base64
import http.client
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import AutoModel, PreTrainedTokenizerBase

from tests.unit.workers.trainers.inference.server.socket_client import CHAT, EMBEDDINGS, Answer, Replica
from tests.unit.workers.trainers.inference.server.test_serving import state, wait_for
from workers.trainers.inference.engine.interface import Interrupted
from workers.trainers.inference.engine.transformers_engine import TransformersEngine


def vectors(embedder: Replica, given: Any, **values: Any) -> Any:
    answer = embedder.ask(EMBEDDINGS, {"model": "tiny", "input": given, **values})
    assert answer.status == 200, answer.text
    assert answer.json["object"] == "list"
    assert [each["index"] for each in answer.json["data"]] == list(range(len(answer.json["data"])))
    return [each["embedding"] for each in answer.json["data"]]


def test_texts_and_their_tokens_have_the_same_vectors(embedder: Replica, tokenizer: PreTrainedTokenizerBase) -> None:
    texts = ["Return the name", "No text"]
    tokens = [list(tokenizer(text).input_ids) for text in texts]

    expected = vectors(embedder, texts)

    assert np.shape(expected) == (2, 32)
    assert vectors(embedder, tokens) == expected
    assert vectors(embedder, tokens[1]) == vectors(embedder, "No text")


def test_base64_holds_the_same_numbers(embedder: Replica) -> None:
    [numbers] = vectors(embedder, "Return the name")
    [encoded] = vectors(embedder, "Return the name", encoding_format="base64")

    assert np.frombuffer(base64.b64decode(encoded), "<f4").tolist() == numbers


def test_vectors_are_cut_and_normalized(embedder: Replica) -> None:
    [whole] = vectors(embedder, "Return the name")
    [cut] = vectors(embedder, "Return the name", dimensions=8)

    assert cut == pytest.approx(np.array(whole[:8]) / np.linalg.norm(whole[:8]), abs=1e-6)


def test_usage_counts_the_tokens(embedder: Replica, tokenizer: PreTrainedTokenizerBase) -> None:
    usage = embedder.ask(EMBEDDINGS, {"model": "tiny", "input": ["one", "two"]}).json["usage"]

    count = len(tokenizer("one").input_ids) + len(tokenizer("two").input_ids)
    assert usage == {"prompt_tokens": count, "total_tokens": count}


@pytest.mark.parametrize(
    ("values", "param"),
    [({"dimensions": 33}, "dimensions"), ({"input": "x" * 600}, "input"), ({"input": [4000]}, "input")],
)
def test_request_that_is_refused(embedder: Replica, values: dict[str, Any], param: str) -> None:
    answer = embedder.ask(EMBEDDINGS, {"model": "tiny", "input": "text", **values})

    assert (answer.status, answer.error["param"]) == (400, param)


def test_batches_are_the_steps_of_a_replica(
    run_replica: Callable[..., Replica], save_model: Callable[..., Path]
) -> None:
    replica = run_replica(save_model("bert", kind="bert", of=AutoModel), task="embed")
    for _ in range(3):
        vectors(replica, "text")

    assert replica.stop().step == 3


def test_model_for_vectors_has_no_chat(embedder: Replica) -> None:
    answer = embedder.ask(CHAT, {"model": "tiny", "messages": [{"role": "user", "content": "?"}]})

    assert (answer.status, answer.error["param"]) == (400, "model")


@pytest.fixture
def slow(
    run_replica: Callable[..., Replica], save_model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> Replica:
    """Makes vectors until they are not wanted any more."""

    def embeddings(_engine: object, _texts: object, _pooling: object, interrupted: Callable[[], bool]) -> None:
        until = time.monotonic() + 20
        while not interrupted():
            assert time.monotonic() < until
            time.sleep(0.01)
        raise Interrupted

    monkeypatch.setattr(TransformersEngine, "embeddings", embeddings)
    return run_replica(save_model("bert", kind="bert", of=AutoModel), task="embed", max_waiting=1)


def test_texts_are_requests_in_flight_until_the_client_hangs_up(slow: Replica) -> None:
    with slow.connect() as connection:
        client = http.client.HTTPConnection("engine")
        client.sock = connection
        client.request("POST", EMBEDDINGS, json.dumps({"model": "tiny", "input": "text"}))
        wait_for(lambda: state(slow)["in_flight"] == 1)

    wait_for(lambda: state(slow)["in_flight"] == 0)


def test_texts_that_are_cut_off_are_told_that_the_replica_ended(slow: Replica) -> None:
    answers: list[Answer] = []
    asked = threading.Thread(target=lambda: answers.append(slow.ask(EMBEDDINGS, {"model": "tiny", "input": "text"})))
    asked.start()
    wait_for(lambda: state(slow)["in_flight"] == 1)

    slow.stop()

    asked.join(30)
    assert (answers[0].status, answers[0].error["code"]) == (503, "replica_is_ending")
