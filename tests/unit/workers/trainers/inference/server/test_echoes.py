"""Completions whose prompts come back with the log-probabilities of their tokens."""

import math
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedTokenizerBase

from tests.unit.workers.trainers.inference.server.socket_client import COMPLETIONS, Replica
from tests.unit.workers.trainers.inference.server.test_adapters import adapter
from workers.trainers.inference.serving.openai.handlers import ADAPTER

__all__ = ["adapter"]  # a fixture
pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
TEXT = "Return the name of the key"


def body(prompt: Any = TEXT, **values: Any) -> dict[str, Any]:
    return {"model": "tiny", "prompt": prompt, "max_tokens": 4, "temperature": 0, "echo": True, "logprobs": 2, **values}


def expected(model: Path, tokens: list[int]) -> list[float]:
    """By the library alone."""
    with torch.inference_mode():
        logits = AutoModelForCausalLM.from_pretrained(model)(torch.tensor([tokens])).logits[0]
    every = logits.float().log_softmax(-1)
    return [float(every[place, token]) for place, token in enumerate(tokens[1:])]


def close(found: list[float], wanted: list[float]) -> bool:
    return len(found) == len(wanted) and all(
        math.isclose(*pair, abs_tol=1e-4) for pair in zip(found, wanted, strict=True)
    )


def test_tokens_of_the_prompt_precede_those_of_the_answer(
    replica: Replica, llama: Path, tokenizer: PreTrainedTokenizerBase
) -> None:
    tokens = list(tokenizer(TEXT).input_ids)
    plain = replica.ask(COMPLETIONS, body(echo=False)).json["choices"][0]

    [choice] = replica.ask(COMPLETIONS, body()).json["choices"]

    found = choice["logprobs"]
    first, *others = found["token_logprobs"]
    assert (first, found["top_logprobs"][0]) == (None, None)
    assert close(others[: len(tokens) - 1], expected(llama, tokens))
    assert choice["text"] == TEXT + plain["text"]
    assert found["tokens"][len(tokens) :][: len(plain["logprobs"]["tokens"])] == plain["logprobs"]["tokens"]
    assert {len(values) for values in found.values()} == {len(found["tokens"])}
    assert found["text_offset"][len(tokens)] == len(TEXT)
    assert all(1 <= len(top) <= 2 for top in found["top_logprobs"][1:])
    assert all(max(top.values()) >= own for top, own in zip(found["top_logprobs"][1:], others, strict=True))


def test_prompt_alone(replica: Replica, tokenizer: PreTrainedTokenizerBase) -> None:
    tokens = list(tokenizer(TEXT).input_ids)
    whole = replica.ask(COMPLETIONS, body(tokens)).json["choices"][0]

    answer = replica.ask(COMPLETIONS, body([tokens, tokens[:2]], max_tokens=0)).json

    one, two = answer["choices"]
    assert one["text"] == tokenizer.decode(tokens)
    assert one["logprobs"]["token_logprobs"] == whole["logprobs"]["token_logprobs"][: len(tokens)]
    assert close(two["logprobs"]["token_logprobs"][1:], whole["logprobs"]["token_logprobs"][1:2])
    assert (one["finish_reason"], answer["usage"]["completion_tokens"]) == ("length", 0)
    assert answer["usage"]["prompt_tokens"] == len(tokens) + 2


def test_prompt_alone_without_logarithms_is_its_text(replica: Replica) -> None:
    answer = replica.ask(COMPLETIONS, body(max_tokens=0, logprobs=None)).json

    assert answer["choices"] == [{"text": TEXT, "index": 0, "logprobs": None, "finish_reason": "length"}]


@pytest.mark.parametrize("max_tokens", [0, 4])
def test_stream_has_what_the_whole_answer_has(replica: Replica, max_tokens: int) -> None:
    [whole] = replica.ask(COMPLETIONS, body(max_tokens=max_tokens)).json["choices"]

    events = replica.ask(COMPLETIONS, body(max_tokens=max_tokens, stream=True)).events

    parts = [event["choices"][0] for event in events]
    assert "".join(part["text"] for part in parts) == whole["text"]
    logprobs = [part["logprobs"] for part in parts if part["logprobs"]]
    assert [token for each in logprobs for token in each["tokens"]] == whole["logprobs"]["tokens"]
    assert [part["finish_reason"] for part in parts if part["finish_reason"]] == [whole["finish_reason"]]


def test_end_of_the_text_has_a_place_of_its_own(replica: Replica, tokenizer: PreTrainedTokenizerBase) -> None:
    """Clients cut off the one token that they have asked for."""
    end = tokenizer.eos_token_id
    assert end is not None

    [choice] = replica.ask(COMPLETIONS, body(max_tokens=1, logit_bias={str(end): 100})).json["choices"]

    assert choice["text"] == TEXT
    assert len(choice["logprobs"]["tokens"]) == len(tokenizer(TEXT).input_ids) + 1


def test_long_prompt_is_read_in_pieces_with_the_same_numbers(
    run_replica: Callable[..., Replica], llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = [3 + place * 7 % 200 for place in range(100)]
    replica = run_replica(llama)
    whole = replica.ask(COMPLETIONS, body(tokens, max_tokens=0)).json["choices"][0]
    monkeypatch.setattr("workers.trainers.inference.engine.prompt_reading.token_budget", lambda *_, **__: 16)

    pieces = replica.ask(COMPLETIONS, body(tokens, max_tokens=0)).json["choices"][0]

    assert close(pieces["logprobs"]["token_logprobs"][1:], whole["logprobs"]["token_logprobs"][1:])
    assert close(whole["logprobs"]["token_logprobs"][1:], expected(llama, tokens))


def test_other_answers_are_the_same_while_prompts_are_read(replica: Replica) -> None:
    asked = {**body(echo=False, logprobs=None), "max_tokens": 48, "temperature": 1.2, "seed": 3}
    alone = replica.ask(COMPLETIONS, asked).json["choices"]
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(replica.ask(COMPLETIONS, asked).json["choices"]))

    thread.start()
    echoes = [replica.ask(COMPLETIONS, body(max_tokens=0)).json["choices"] for _ in range(5)]
    thread.join(60)

    assert found == [alone]
    assert all(each == echoes[0] for each in echoes)


def test_adapter_reads_the_prompt_where_it_is_asked_for(
    run_replica: Callable[..., Replica], llama: Path, adapter: Path
) -> None:
    replica = run_replica(llama, max_loaded=1, adapter_directories={"job-1": adapter, "job-2": adapter})

    base = replica.ask(COMPLETIONS, body()).json["choices"]
    adapted = replica.ask(COMPLETIONS, body(), **{ADAPTER: "job-1"}).json["choices"]
    other = replica.ask(COMPLETIONS, body(), **{ADAPTER: "job-2"}).json["choices"]

    assert adapted[0]["logprobs"]["token_logprobs"][1] != base[0]["logprobs"]["token_logprobs"][1]
    assert other == adapted
    assert replica.ask(COMPLETIONS, body()).json["choices"] == base


@pytest.mark.parametrize("prompt", [[4000], [1] * 300])
def test_prompt_that_can_not_be_read(replica: Replica, prompt: list[int]) -> None:
    answer = replica.ask(COMPLETIONS, body(prompt, max_tokens=0))

    assert (answer.status, answer.error["param"]) == (400, "prompt")
