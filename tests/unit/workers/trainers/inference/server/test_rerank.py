"""Documents in the order in which they answer a query, over the socket of a replica."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers.processors import TemplateProcessing
from transformers import AutoModelForSequenceClassification, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from tests.unit.workers.trainers.inference.server.conftest import replicas
from tests.unit.workers.trainers.inference.server.socket_client import CHAT, EMBEDDINGS, Replica
from workers.trainers.failures import InvalidConfig

RERANK = "/v1/rerank"
QUERY, DOCUMENTS = "Return the name", ["No text", "the name of the key", "if x: return x", "No text"]


@pytest.fixture(scope="module")
def cross_encoder(save_model: Callable[..., Path], tokenizer: PreTrainedTokenizerBase) -> Path:
    """A tiny encoder that reads pairs, with segments."""
    directory = save_model("cross", kind="bert", of=AutoModelForSequenceClassification, num_labels=1)
    backend = type(tokenizer.backend_tokenizer).from_str(tokenizer.backend_tokenizer.to_str())
    backend.post_processor = TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B:1 </s>:1", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    PreTrainedTokenizerFast(
        tokenizer_object=backend, model_max_length=128, pad_token="<pad>", cls_token="<s>", sep_token="</s>"
    ).save_pretrained(directory)
    return directory


@pytest.fixture(scope="module")
def reranker(tmp_path_factory: pytest.TempPathFactory, cross_encoder: Path) -> Iterator[Replica]:
    with replicas(tmp_path_factory.mktemp("reranker")) as run:
        yield run(cross_encoder, task="score")


def asked(**values: Any) -> dict[str, Any]:
    return {"model": "tiny", "query": QUERY, "documents": DOCUMENTS, **values}


def expected(directory: Path) -> list[float]:
    """By the library alone, one by one."""
    tokenizer = PreTrainedTokenizerFast.from_pretrained(directory)
    model = AutoModelForSequenceClassification.from_pretrained(directory).eval()
    with torch.inference_mode():
        return [float(model(**tokenizer(QUERY, text, return_tensors="pt")).logits.sigmoid()) for text in DOCUMENTS]


def test_scores_are_those_of_the_model_and_the_best_come_first(reranker: Replica, cross_encoder: Path) -> None:
    answer = reranker.ask(RERANK, asked())

    assert answer.status == 200, answer.text
    results = answer.json["results"]
    scores = expected(cross_encoder)
    assert [each["index"] for each in results] == sorted(range(4), key=lambda index: (-scores[index], index))
    assert all(math.isclose(each["relevance_score"], scores[each["index"]], abs_tol=1e-5) for each in results)
    assert all("document" not in each for each in results)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(cross_encoder)
    tokens = sum(len(tokenizer(QUERY, text).input_ids) for text in DOCUMENTS)
    assert answer.json["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}
    assert (answer.json["model"], answer.json["id"].startswith("rerank-")) == ("tiny", True)


def test_the_best_few_with_their_documents(reranker: Replica) -> None:
    whole = reranker.ask(RERANK, asked()).json["results"]

    some = reranker.ask(
        RERANK, asked(documents=[{"text": text} for text in DOCUMENTS], top_n=2, return_documents=True)
    ).json["results"]

    assert [each["index"] for each in some] == [each["index"] for each in whole[:2]]
    assert [each["document"]["text"] for each in some] == [DOCUMENTS[each["index"]] for each in some]


def test_a_document_beyond_the_context_is_refused_or_shortened(reranker: Replica) -> None:
    documents = ["the name " * 200, "the name"]

    refused = reranker.ask(RERANK, asked(documents=documents))
    shortened = reranker.ask(RERANK, asked(documents=documents, max_tokens_per_doc=16))

    assert (refused.status, refused.error["param"], refused.error["code"]) == (
        400,
        "documents",
        "context_length_exceeded",
    )
    assert "document 0" in refused.error["message"]
    assert shortened.status == 200, shortened.text


def test_reward_model_reads_the_document_as_the_answer(
    run_replica: Callable[..., Replica], save_model: Callable[..., Path], tokenizer: PreTrainedTokenizerBase
) -> None:
    directory = save_model("reward", of=AutoModelForSequenceClassification, num_labels=1)
    model = AutoModelForSequenceClassification.from_pretrained(directory).eval()
    ids = tokenizer(QUERY + DOCUMENTS[1], add_special_tokens=False, return_tensors="pt").input_ids
    with torch.inference_mode():
        wanted = float(model(input_ids=ids).logits.sigmoid())

    found = run_replica(directory, task="score").ask(RERANK, asked(documents=DOCUMENTS[1:2])).json["results"]

    assert math.isclose(found[0]["relevance_score"], wanted, abs_tol=1e-5)


def test_other_requests_are_refused(reranker: Replica, replica: Replica) -> None:
    chat = reranker.ask(CHAT, {"model": "tiny", "messages": [{"role": "user", "content": "x"}]})
    vectors = reranker.ask(EMBEDDINGS, {"model": "tiny", "input": "x"})
    text = replica.ask(RERANK, asked())

    for answer in (chat, vectors, text):
        assert (answer.status, answer.error["param"]) == (400, "model")
    assert "/v1/rerank" in chat.error["message"]


def test_model_with_several_labels_is_not_served(
    run_replica: Callable[..., Replica], save_model: Callable[..., Path]
) -> None:
    directory = save_model("three", of=AutoModelForSequenceClassification, num_labels=3)

    replica = run_replica(directory, task="score")

    with pytest.raises(InvalidConfig, match="one label, and this model has 3"):
        replica.stop()
    replica.stop = lambda *_: None  # type: ignore[assignment,method-assign]  # the fixture stops it again
