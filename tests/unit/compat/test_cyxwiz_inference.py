"""CyxWiz's jobs of type INFERENCE in our words."""

import json
from typing import Any

import pytest

from app.compat.cyxwiz import messages_pb2 as pb
from app.compat.cyxwiz.inference import to_native
from app.compat.cyxwiz.to_native import DIALECT
from app.domain.errors import BadSpec
from app.http.request_body import validated
from app.schemas.inference import SubmitInferenceSchema

JOB_ID = "job-0197d2a4-7c1e-7d3a-9f53-1d2c5b0a9e11"
SECTIONS = {
    "kind": "features",
    "model": {"job_id": JOB_ID, "checkpoint": "best"},
    "task": {"pooling": "mean"},
    "output": {"format": "npy"},
    "resource_config": {"gpu_count": 2},
    "labels": {"team": "search"},
}


def config(**changes: Any) -> pb.JobConfig:
    values = {"job_type": pb.INFERENCE, "model_config": "/srv/models/base", "dataset_uri": "/srv/data/a.jsonl"}
    return pb.JobConfig(**{**values, **changes})


def test_every_field_arrives_where_the_inference_document_has_it() -> None:
    native = to_native(
        config(
            job_id="night-7",
            required_device=pb.CUDA,
            min_memory_mb=16_000,
            priority=8,
            timeout_seconds=3600,
            max_output_size_mb=500,
        )
    )

    assert native.document == {
        "name": "night-7",
        "model": {"model_uri": "/srv/models/base"},
        "data_config": {"sources": [{"path": "/srv/data/a.jsonl"}]},
        "resource_config": {"device_type": "cuda", "gpu_memory_min_mb": 16_000},
        "output": {"max_size_mb": 500},
        "scheduling_config": {"priority": 8, "max_runtime_seconds": 3600},
    }
    assert native.foreign == {DIALECT: {"job_id": "night-7", "plain_model": True}}
    assert validated(SubmitInferenceSchema(), native.document).document.kind == "batch"


def test_the_model_may_be_the_result_of_a_job() -> None:
    assert to_native(config(model_config=JOB_ID)).document["model"] == {"job_id": JOB_ID}


def test_the_model_may_bring_parts_of_an_inference_document() -> None:
    document = to_native(config(model_config=json.dumps(SECTIONS), required_device=pb.CPU)).document

    assert document == {
        **SECTIONS,
        "name": "cyxwiz",
        "data_config": {"sources": [{"path": "/srv/data/a.jsonl"}]},
        "resource_config": {"gpu_count": 2, "device_type": "cpu"},
    }


@pytest.mark.parametrize(
    ("changes", "field", "why"),
    [
        ({"epochs": 1}, "epochs", "is for TRAINING; omit it with INFERENCE"),
        ({"batch_size": 8}, "batch_size", "is for TRAINING"),
        ({"learning_rate": 0.1}, "learning_rate", "is for TRAINING"),
        ({"dataset_uri": ""}, "dataset_uri", "must not be empty"),
        ({"required_device": pb.OPENCL}, "required_device", "set CUDA, CPU"),
        ({"model_config": "{"}, "model_config", "must be the id of a job"),
        ({"model_config": "[]"}, "model_config", "must be the id of a job"),
        ({"model_config": '{"model_type": "llama"}'}, "model_config", "has random weights"),
        ({"model_config": '{"training_config": {}}'}, "model_config", "training_config is unknown; known: kind, model"),
        (
            {"model_config": '{"output": {"max_size_mb": 1}}', "max_output_size_mb": 2},
            "model_config.output.max_size_mb",
            "is set by max_output_size_mb",
        ),
    ],
)
def test_what_has_no_meaning_is_refused_with_its_field(changes: dict[str, Any], field: str, why: str) -> None:
    with pytest.raises(BadSpec, match=why) as refused:
        to_native(config(**changes))

    assert refused.value.field == field
