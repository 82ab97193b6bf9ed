"""Whatever is written into a job document, it is taken or refused; nothing else happens."""

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain.errors import TrainyardError
from app.domain.spec.job_spec import JobSpec, from_document
from app.domain.spec.locations.paths import ReadingRules
from app.http.request_body import check_content, validated
from app.schemas.jobs import SubmitJobSchema
from tests.builders.factories import make_document

SCHEMA = SubmitJobSchema()
RULES = ReadingRules(roots=("/srv",), data_dir="/srv/.trainyard")
FULL = make_document(
    labels={"a": "b"},
    training_config={
        "training_type": "LORA",
        "base_model": {
            "model_id": "org/model",
            "source": "hub",
            "revision": "main",
            "tokenizer_id": "/srv/tokenizer",
            "dtype": "bfloat16",
            "trust_remote_code": True,
            "model_kwargs": {
                "attn_implementation": "sdpa",
                "attention_dropout": 0.1,
                "max_position_embeddings": 2048,
                "rope_scaling": {"rope_type": "linear", "factor": 2.0},
            },
        },
        "framework": {"distributed": {"world_size": 1, "strategy": "ddp", "config": {}}, "config": {}},
        "environment": {"A": "b"},
        "evaluation": {"strategy": "steps", "steps": 5},
        "resume_from_checkpoint": "job-1:best",
    },
    data_config={
        "sources": [
            {
                "path": "/srv/data/*.jsonl",
                "format": "jsonl",
                "type": "file",
                "split": "train[:90%]",
                "columns": ["messages"],
                "sampling": {"fraction": 0.5, "seed": 3},
                "weight": 1.5,
                "filters": [{"column": "a", "op": "in", "value": [1, "x"]}, {"column": "b", "op": "not_null"}],
            },
            {"path": "hf://datasets/org/set@v1", "split": "validation"},
            {"path": "s3://bucket/key.csv.gz", "split": "test"},
        ],
        "preprocess": {
            "tokenizer_config": {"padding_side": "left", "model_max_length": 5, "additional_special_tokens": ["<x>"]},
            "add_bos_token": True,
            "add_eos_token": False,
            "padding": "max_length",
            "truncation": True,
            "chat_template": "{{ messages }}",
            "field_mapping": {"messages": "messages", "roles.bot": "assistant"},
        },
        "seed": 1,
        "pin_memory": True,
        "num_workers": 2,
        "streaming": False,
    },
    output_config={
        "output_model_name": "x",
        "output_path": "s3://bucket/out",
        "export_format": "merged",
        "merge_lora": True,
        "push_to_hub": True,
        "hub_repo_id": "org/model",
        "hub_token": "x",
        "hub_private": True,
        "checkpoint": {
            "save_strategy": "steps",
            "save_steps": 5,
            "metric_for_best_model": "eval_loss",
            "greater_is_better": False,
            "resume_from_best": True,
        },
    },
    scheduling_config={"queue": "default", "required_capabilities": ["x"]},
)
PIECES = [
    "file:",
    "http:",
    "https:",
    "s3:",
    "hf:",
    "pvc:",
    "ipfs:",
    "scaidrive:",
    "//",
    "/",
    "[",
    "]",
    "[::1%",
    "@",
    ":",
    "*",
    "?",
    "#",
    "%",
    "%2e",
    "..",
    ".",
    "~",
    "\\",
    "\n",
    " ",
    "datasets",
    "bucket",
    "example.org",
    "127.0.0.1",
    "\uff10",
    "a",
]
PLACES = st.lists(st.sampled_from(PIECES), max_size=9).map("".join)
WORD_LIST = [
    "CUSTOM",
    "SFT",
    "LORA",
    "CONTINUED_PRETRAIN",
    "cpu",
    "A100-80GB",
    "train[:5%]",
    "validation[5:",
    "adapter",
    "is_null",
    "<",
    "not_in",
    "eval_loss",
    "hub",
    "local",
    "ckpt-1",
    "job-1",
    "flash_attention_2",
    "***",
    "left",
]
WORDS = st.text() | PLACES | st.sampled_from(WORD_LIST)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def places(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every path in a document."""
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [path, *(found for key, child in items for found in places(child, (*path, key)))]


@pytest.mark.long
@settings(max_examples=400)
@given(st.lists(st.tuples(st.sampled_from(places(FULL)[1:]), VALUES), min_size=1, max_size=3))
def test_any_document_is_accepted_or_refused(changes: list[tuple[tuple[Any, ...], Any]]) -> None:
    document = copy.deepcopy(FULL)
    for place, value in changes:
        replace(document, place, value)

    outcome = outcome_of(document)

    assert isinstance(outcome, JobSpec | TrainyardError)


@pytest.mark.long
@settings(max_examples=400)
@given(PLACES)
def test_any_location_is_accepted_or_refused_for_each_use(place: str) -> None:
    for path in (
        ("data_config", "sources", 0, "path"),
        ("training_config", "base_model", "model_id"),
        ("output_config", "output_path"),
        ("output_config", "log_path"),
    ):
        document = make_document(resource_config={"device_type": "auto"}, output_config={})
        replace(document, path, place)

        assert isinstance(outcome_of(document), JobSpec | TrainyardError)


@pytest.mark.long
@settings(max_examples=200)
@given(st.dictionaries(st.sampled_from(["column", "op", "value"]), VALUES))
def test_any_filter_is_accepted_or_refused(condition: dict[str, Any]) -> None:
    document = make_document()
    document["data_config"]["sources"][0]["filters"] = [{"column": "a", "op": "==", "value": 1, **condition}]

    assert isinstance(outcome_of(document), JobSpec | TrainyardError)


def replace(document: Any, place: tuple[Any, ...], value: Any) -> None:
    """Leaves the document as it is where an earlier change took the place away."""
    try:
        for step in place[:-1]:
            document = document[step]
        document[place[-1]] = value
    except (KeyError, IndexError, TypeError):
        return


def outcome_of(document: dict[str, Any]) -> JobSpec | TrainyardError:
    try:
        check_content(document, max_nesting=32)
        return from_document(validated(SCHEMA, document), RULES, {"user": "t"})
    except TrainyardError as refusal:
        return refusal


def test_the_full_document_is_taken() -> None:
    assert isinstance(outcome_of(copy.deepcopy(FULL)), JobSpec)
