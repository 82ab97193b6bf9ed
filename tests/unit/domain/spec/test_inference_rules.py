"""What documents of inference jobs may say, which defaults they get, and what their rules refuse."""

from typing import Any

import pytest

from app.domain.errors import InvalidRequest
from app.domain.spec.inference import EMBED, FIELDS, GENERATE, OPENAI_ENDPOINTS, REQUESTS, InferenceTask
from app.domain.spec.model import JobDocument
from app.domain.spec.rules.inference import without_effect
from tests.builders.submitted import changed, refusal, spec_of

TASK, OUTPUT = "inference.task", "inference.output"
BATCH: dict[str, Any] = {
    "name": "a",
    "kind": "batch",
    "training_config": {
        "training_type": "BATCH",
        "base_model": {"model_id": "org/model"},
        "framework": {"type": "TRANSFORMERS"},
    },
    "data_config": {"sources": [{"path": "/srv/prompts.jsonl"}]},
    "resource_config": {"device_type": "cpu"},
    "inference": {"model": {"quantization": "none"}},
}
CHAT = {"type": "requests", "endpoint": "/v1/chat/completions"}
FEATURES = changed(("kind", "features"), ("training_config.training_type", "FEATURES"), start=BATCH)


def completed(*changes: tuple[str, Any], start: dict[str, Any] = BATCH) -> JobDocument:
    return spec_of(changed(*changes, start=start)).document


def refused(*changes: tuple[str, Any], start: dict[str, Any] = BATCH) -> InvalidRequest:
    return refusal(changed(*changes, start=start))


def test_each_field_that_the_task_reads_is_stored() -> None:
    stored = completed().to_json()["inference"]

    assert set(stored["task"]) == {"type", *FIELDS[GENERATE]}
    assert stored["output"] == {"format": "jsonl", "keep_columns": [], "shard_records": 512}
    assert stored["on_error"] == {"action": "record", "max_share": 0.01}


def test_requests_have_an_endpoint_and_no_other_form() -> None:
    stored = completed((TASK, CHAT)).to_json()["inference"]

    assert stored["task"] == {**CHAT, "only_model": "", "seed": 0, "created": 0}
    assert set(stored["task"]) == {"type", *FIELDS[REQUESTS]}
    assert stored["output"]["format"] == "jsonl"


@pytest.mark.parametrize("endpoint", OPENAI_ENDPOINTS)
def test_requests_for_embeddings_make_vectors(endpoint: str) -> None:
    task = InferenceTask().changed(type=REQUESTS, endpoint=endpoint)

    assert task.makes_vectors == (endpoint == "/v1/embeddings")
    assert InferenceTask().changed(type=EMBED).makes_vectors


def test_chats_among_requests_may_have_a_template() -> None:
    document = completed((TASK, CHAT), ("data_config.preprocess.chat_template", "{{ messages }}"))

    assert document.data_config.preprocess.chat_template == "{{ messages }}"


def test_features_embed_and_are_written_as_parquet() -> None:
    inference = completed(start=FEATURES).to_json()["inference"]

    assert set(inference["task"]) == {"type", *FIELDS[EMBED]}
    assert (inference["task"]["type"], inference["output"]["format"]) == ("embed", "parquet")


def test_stored_data_says_only_what_selects_records() -> None:
    data = completed(("data_config.sources.0.sampling", {"count": 5})).to_json()["data_config"]

    assert data["seed"] == 42
    assert data["sources"][0]["sampling"] == {"seed": 42, "count": 5}
    assert "batch_size" not in data


def test_completed_document_passes_again() -> None:
    stored = completed().to_json()

    assert spec_of(stored).document.to_json() == stored


def test_validation_records_may_be_the_only_ones() -> None:
    document = completed(("data_config.sources.0.split", "validation[:10]"))

    assert document.data_config.sources[0].split == "validation[:10]"


@pytest.mark.parametrize(
    ("changes", "field", "said"),
    [
        ([(f"{TASK}.type", "embed")], f"{TASK}.type", "kind features"),
        ([(f"{TASK}.pooling", "mean")], f"{TASK}.pooling", "for task type embed"),
        ([(f"{TASK}", {"type": "score", "n": 2})], f"{TASK}.n", "not for score"),
        ([(f"{TASK}", {"n": 64, "max_new_tokens": 4096, "temperature": 1.0})], f"{TASK}.n", "131072"),
        ([(f"{TASK}", {"n": 2})], f"{TASK}.n", "temperature above 0"),
        ([(f"{TASK}.type", "requests")], f"{TASK}.endpoint", "/v1/embeddings"),
        ([(TASK, {**CHAT, "endpoint": "/v1/responses"})], f"{TASK}.endpoint", "/v1/chat/completions"),
        ([(TASK, {**CHAT, "temperature": 0.5})], f"{TASK}.temperature", "not for requests"),
        ([(TASK, {"only_model": "a"})], f"{TASK}.only_model", "for task type requests"),
        ([(TASK, CHAT), (f"{OUTPUT}.format", "parquet")], f"{OUTPUT}.format", "as jsonl"),
        ([(TASK, CHAT), (f"{OUTPUT}.keep_columns", ["id"])], f"{OUTPUT}.keep_columns", "custom_id"),
        (
            [(TASK, CHAT), ("data_config.preprocess.field_mapping", {"prompt": "a"})],
            "data_config.preprocess.field_mapping",
            "as they are",
        ),
        (
            [(TASK, {**CHAT, "endpoint": "/v1/completions"}), ("data_config.preprocess.chat_template", "x")],
            "data_config.preprocess.chat_template",
            "no chats",
        ),
        ([(f"{TASK}.stop", ["a"] * 5)], f"{TASK}.stop", "at most 4"),
        ([(f"{TASK}.stop", ["a", ""])], f"{TASK}.stop.1", "1 to 256 characters"),
        ([(f"{TASK}.top_p", 0.0)], f"{TASK}.top_p", "above 0"),
        ([(f"{TASK}.temperature", 1e-5)], f"{TASK}.temperature", "at least 0.0001"),
        ([(f"{TASK}.min_p", 1.0)], f"{TASK}.min_p", "temperature to 0"),
        ([(f"{TASK}.repetition_penalty", 0.0)], f"{TASK}.repetition_penalty", "1 is none"),
        ([(f"{TASK}.response_format", {"type": "xml"})], f"{TASK}.response_format.type", "json_schema, regex"),
        (
            [("inference.on_error", {"action": "fail", "max_share": 0.1})],
            "inference.on_error.max_share",
            "leave it out",
        ),
        ([(f"{OUTPUT}.format", "npy")], f"{OUTPUT}.format", "parquet, arrow, jsonl"),
        ([(f"{OUTPUT}.keep_columns", ["output"])], f"{OUTPUT}.keep_columns.0", "results themselves"),
        ([(f"{OUTPUT}.keep_columns", ["a", "a"])], f"{OUTPUT}.keep_columns.1", "named twice"),
        (
            [(f"{OUTPUT}.keep_columns", ["b"]), ("data_config.sources.0.columns", ["prompt"])],
            f"{OUTPUT}.keep_columns.0",
            "in no source's columns",
        ),
        ([("resource_config.node_count", 2)], "resource_config.node_count", "one node"),
        ([("resource_config.gpu_count", 0)], "resource_config.gpu_count", "at least 1"),
        ([("inference.model.quantization", "bnb-4bit")], "inference.model.quantization", "needs GPUs"),
        ([("training_config.base_model.model_id", "none")], "training_config.base_model.model_id", "model_uri"),
        ([("training_config.base_model.dtype", "float8")], "training_config.base_model.dtype", "unknown dtype"),
        ([("training_config.environment", {"PATH": "x"})], "training_config.environment.PATH", "reserved"),
        ([("data_config.sources", [])], "data_config.sources", "at least one"),
        ([("data_config.sources.0.split", "train[")], "data_config.sources.0.split", "split"),
        ([("data_config.sources.0.path", "/etc/passwd")], "data_config.sources.0.path", "outside"),
        ([("output_config.output_path", "/ty/files/jobs/job-1/out")], "output_config.output_path", "own directory"),
        (
            [("data_config.preprocess.field_mapping", {"chosen": "a"})],
            "data_config.preprocess.field_mapping.chosen",
            "nothing is called",
        ),
        (
            [(f"{TASK}.type", "loglikelihood"), ("data_config.preprocess.chat_template", "x")],
            "data_config.preprocess.chat_template",
            "no chats",
        ),
        ([("resource_config.image", {"reference": "a/b:1"})], "resource_config.image.reference", "CUSTOM"),
    ],
)
def test_batch_is_refused(changes: list[tuple[str, Any]], field: str, said: str) -> None:
    error = refused(*changes)

    assert (error.field, said in error.message) == (field, True), error.message


@pytest.mark.parametrize(
    ("changes", "field", "said"),
    [
        ([(f"{TASK}.type", "generate")], f"{TASK}.type", "kind batch"),
        ([(f"{TASK}.temperature", 1.0)], f"{TASK}.temperature", "for task type generate"),
        ([(f"{OUTPUT}.format", "csv")], f"{OUTPUT}.format", "jsonl, npy, safetensors"),
        ([(f"{TASK}.pooling", "median")], f"{TASK}.pooling", "mean, last, cls, max, none"),
        ([(f"{TASK}.dtype", "bfloat16")], f"{TASK}.dtype", "parquet has no bfloat16"),
        ([(f"{OUTPUT}.keep_columns", ["id"]), (f"{OUTPUT}.format", "npy")], f"{OUTPUT}.keep_columns", "numbers alone"),
    ],
)
def test_features_are_refused(changes: list[tuple[str, Any]], field: str, said: str) -> None:
    error = refused(*changes, start=FEATURES)

    assert (error.field, said in error.message) == (field, True), error.message


def test_a_job_that_fails_at_the_first_error_has_no_share_of_them() -> None:
    stored = completed(("inference.on_error", {"action": "fail"})).to_json()

    assert stored["inference"]["on_error"] == {"action": "fail"}
    assert spec_of(stored).document.to_json() == stored


def test_weights_of_4_bits_ask_for_a_gpu() -> None:
    stored = completed(("inference.model.quantization", "bnb-4bit"), ("resource_config", {})).to_json()

    assert stored["resource_config"]["device_type"] == "cuda"
    assert spec_of(stored).document.to_json() == stored


def test_result_of_a_job_needs_no_base_model() -> None:
    changes = (("training_config.base_model.model_id", "none"), ("inference.model.job_id", "job-1"))

    assert completed(*changes).training_config.base_model.model_id == "none"


def test_sampling_has_no_effect_at_temperature_0() -> None:
    sampled = InferenceTask().changed(top_k=5, seed=3)

    assert [text.partition(":")[0] for text in without_effect(sampled)] == ["task.top_k", "task.seed"]
    assert without_effect(sampled.changed(temperature=0.5)) == []


def test_an_evaluation_has_no_idle_devices() -> None:
    benchmark = {"name": "loss", "dataset": 0}
    evaluation = changed(
        ("kind", "evaluation"),
        ("training_config.training_type", "EVALUATION"),
        ("inference.benchmarks", [benchmark]),
        ("resource_config.gpu_count", 2),
        start=BATCH,
    )

    error = refusal(evaluation)

    assert error.field == "resource_config.gpu_count"
    assert "of 2 devices 1 would idle; ask for 1 at most" in error.message
