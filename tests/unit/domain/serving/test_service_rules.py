"""What a document of a service may not say, although each of its fields is valid."""

from typing import Any

import pytest

from app.domain.errors import BadSpec, NotSupportedYet
from app.domain.serving.document import ServiceDocument
from app.domain.serving.rules import check


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"replicas": {"min": 2, "max": 2}},
        {"limits": {"max_context": 1024}},  # answers are shorter then by themselves
        {"limits": {"max_context": 1024, "max_output_tokens": 1023}},
        {"defaults": {"temperature": 0.0, "top_p": 0.5}},
        {"adapters": {"source": "none"}},
        {"engine": "transformers", "task": "embed"},
        {"task": "score"},
    ],
)
def test_documents_that_agree_with_themselves(parts: dict[str, Any]) -> None:
    check(ServiceDocument.from_json(parts))


@pytest.mark.parametrize(
    ("parts", "field", "message"),
    [
        ({"replicas": {"min": 2}}, "replicas.min", r"at least 2 replicas \(min\) and at most 1 \(max\)"),
        (
            {"limits": {"max_context": 1024, "max_output_tokens": 1024}},
            "limits.max_output_tokens",
            r"1024 tokens leaves no room for a prompt in a context of 1024",
        ),
        ({"task": "embed", "defaults": {"temperature": 0.5}}, "defaults.temperature", "makes vectors"),
        ({"task": "score", "defaults": {"temperature": 0.5}}, "defaults.temperature", "makes scores"),
        ({"defaults": {"temperature": 0.000001}}, "defaults.temperature", "temperature is 0"),
        ({"defaults": {"top_p": 0.0}}, "defaults.top_p", "leaves no token"),
        ({"defaults": {"repetition_penalty": 0.001}}, "defaults.repetition_penalty", "leaves no token"),
        ({"defaults": {"temperature": 1e-38}}, "defaults.temperature", "at least"),
        ({"adapters": {"source": "none", "max_loaded": 8}}, "adapters.max_loaded", "has no adapters"),
    ],
)
def test_contradictions_name_their_field(parts: dict[str, Any], field: str, message: str) -> None:
    with pytest.raises(BadSpec, match=message) as caught:
        check(ServiceDocument.from_json(parts))

    assert caught.value.field == field


@pytest.mark.parametrize("prefix", ["job", "ftjob", "service", "file", "ckpt"])
def test_a_name_that_has_the_form_of_an_id_is_refused(prefix: str) -> None:
    with pytest.raises(BadSpec, match="has the form of an id") as caught:
        check(ServiceDocument.from_json({"name": f"{prefix}-0193a2b4-0000-7000-8000-00000000abcd"}))

    assert caught.value.field == "name"
    check(ServiceDocument.from_json({"name": f"{prefix}-desk"}))


def test_an_engine_that_no_node_offers_is_not_supported_yet() -> None:
    with pytest.raises(NotSupportedYet, match="no node offers vllm yet") as caught:
        check(ServiceDocument.from_json({"engine": "vllm"}))

    assert caught.value.field == "engine"


@pytest.mark.parametrize(("log", "share"), [("none", 0.0), ("sample:0.01", 0.01), ("sample:1", 1.0)])
def test_share_of_requests_that_are_logged(log: str, share: float) -> None:
    assert ServiceDocument.from_json({"log": log}).logged_share == share
