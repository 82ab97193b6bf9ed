"""Text completions over the socket of a replica."""

from typing import Any

import pytest
from transformers import PreTrainedTokenizerBase

from tests.unit.workers.trainers.inference.server.socket_client import COMPLETIONS, EMBEDDINGS, Replica


def body(prompt: Any = "Return the", **values: Any) -> dict[str, Any]:
    return {"model": "tiny", "prompt": prompt, "max_tokens": 8, "temperature": 0, **values}


def test_texts_and_their_tokens_have_the_same_answers(replica: Replica, tokenizer: PreTrainedTokenizerBase) -> None:
    texts = ["Return the", "No text"]
    tokens = [list(tokenizer(text).input_ids) for text in texts]

    alone = [replica.ask(COMPLETIONS, body(text)).json["choices"][0]["text"] for text in texts]

    for prompt in (texts, tokens):
        found = replica.ask(COMPLETIONS, body(prompt)).json
        assert [choice["text"] for choice in found["choices"]] == alone
        assert [choice["index"] for choice in found["choices"]] == [0, 1]
        assert found["usage"]["prompt_tokens"] == sum(map(len, tokens))
    assert replica.ask(COMPLETIONS, body(tokens[0])).json["choices"][0]["text"] == alone[0]


def test_seeded_answers_do_not_depend_on_other_prompts(replica: Replica) -> None:
    options = {"temperature": 1.2, "seed": 9, "n": 2}

    together = replica.ask(COMPLETIONS, body(["Return the", "No text"], **options)).json["choices"]
    alone = replica.ask(COMPLETIONS, body("No text", **options)).json["choices"]

    assert [choice["text"] for choice in together[2:]] == [choice["text"] for choice in alone]


def test_echo_puts_the_prompt_before_the_answer(replica: Replica) -> None:
    plain = replica.ask(COMPLETIONS, body()).json["choices"][0]["text"]

    whole = replica.ask(COMPLETIONS, body(echo=True)).json["choices"][0]["text"]
    events = replica.ask(COMPLETIONS, body(echo=True, stream=True)).events

    assert whole == "Return the" + plain
    assert "".join(event["choices"][0]["text"] for event in events) == whole
    assert {event["object"] for event in events} == {"text_completion"}


def test_log_probabilities_have_the_places_of_their_tokens(replica: Replica) -> None:
    [choice] = replica.ask(COMPLETIONS, body(logprobs=1)).json["choices"]

    found = choice["logprobs"]
    assert {len(found[name]) for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset")} == {
        len(found["tokens"])
    }
    assert found["text_offset"][0] == 0
    assert found["text_offset"] == sorted(found["text_offset"])
    assert all(len(top) == 1 for top in found["top_logprobs"])


@pytest.mark.parametrize("prompt", ["", []])
def test_empty_prompt_is_the_beginning_of_a_text(replica: Replica, prompt: Any) -> None:
    begins = replica.ask(COMPLETIONS, body([1])).json

    found = replica.ask(COMPLETIONS, body([prompt])).json

    assert (found["choices"], found["usage"]) == (begins["choices"], begins["usage"])


@pytest.mark.parametrize(
    ("values", "param"),
    [
        ({"best_of": 3}, "best_of"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"suffix": "end"}, "suffix"),
        ({"prompt": [4000]}, "prompt"),
    ],
)
def test_request_that_is_refused(replica: Replica, values: dict[str, Any], param: str) -> None:
    answer = replica.ask(COMPLETIONS, {**body(), **values})

    assert (answer.status, answer.error["param"]) == (400, param)


def test_model_that_generates_makes_no_embeddings(replica: Replica) -> None:
    answer = replica.ask(EMBEDDINGS, {"model": "tiny", "input": "text"})

    assert (answer.status, answer.error["param"]) == (400, "model")
