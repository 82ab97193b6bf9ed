"""CyxWiz's words for jobs, both ways; and that its messages are those that its documentation names."""

import dataclasses
import json
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor
from hypothesis import given
from hypothesis import strategies as st

from app.compat.cyxwiz import messages_pb2 as pb
from app.compat.cyxwiz.fields import FIELDS
from app.compat.cyxwiz.from_native import STATES, config_of, numbers
from app.compat.cyxwiz.shapes import body_of
from app.compat.cyxwiz.to_native import DIALECT, Native, to_native
from app.domain.errors import BadSpec
from app.domain.lifecycle.states import JobState
from app.http.request_body import validated
from app.models import Job
from app.schemas.jobs import SubmitJobSchema
from app.schemas.spec.field_verdicts import field_paths
from app.services.jobs.details import JobDetails
from scripts.generated_messages import ROOT, write

DOCUMENTED = {
    pb.JobConfig: (
        "job_id",
        "job_type",
        "model_config",
        "dataset_uri",
        "epochs",
        "batch_size",
        "learning_rate",
        "required_device",
        "min_memory_mb",
        "priority",
        "timeout_seconds",
        "max_output_size_mb",
    ),
    pb.ProgressUpdate: (
        "job_id",
        "progress",
        "current_epoch",
        "total_epochs",
        "metrics",
        "gpu_utilization",
        "memory_used_mb",
        "elapsed_seconds",
        "eta_seconds",
    ),
    pb.CompletionReport: (
        "job_id",
        "status",
        "model_hash",
        "model_uri",
        "final_metrics",
        "compute_time_ms",
        "gpu_time_ms",
        "average_gpu_util",
        "proof_of_compute",
        "error_message",
        "error_stack",
    ),
}


def config(**changes: Any) -> pb.JobConfig:
    values: dict[str, Any] = {
        "job_type": pb.TRAINING,
        "model_config": "/srv/models/base",
        "dataset_uri": "/srv/data/train.jsonl",
        "epochs": 3,
        "batch_size": 8,
    }
    return pb.JobConfig(**{**values, **changes})


def given_back(native: Native) -> pb.JobConfig:
    """The configuration that a job has which was submitted so."""
    spec = validated(SubmitJobSchema(), native.document).to_json()
    job = Job(id="job-1", foreign=native.foreign, spec=spec)
    shown: dict[str, Any] = {field.name: None for field in dataclasses.fields(JobDetails)}
    return config_of(JobDetails(**{**shown, "job": job, "stored": spec}))


@pytest.mark.parametrize("message", DOCUMENTED)
def test_messages_have_the_names_and_numbers_that_cyxwiz_documents(message):
    found = {field.number: field.name for field in message.DESCRIPTOR.fields}

    assert found == dict(enumerate(DOCUMENTED[message], 1))


def test_numbers_have_the_sizes_that_cyxwiz_documents():
    fields = pb.JobConfig.DESCRIPTOR.fields_by_name

    assert {name: fields[name].type for name in ("epochs", "min_memory_mb", "learning_rate", "job_id")} == {
        "epochs": FieldDescriptor.TYPE_INT32,
        "min_memory_mb": FieldDescriptor.TYPE_INT64,
        "learning_rate": FieldDescriptor.TYPE_DOUBLE,
        "job_id": FieldDescriptor.TYPE_STRING,
    }


def test_python_form_of_the_messages_is_that_of_the_source(tmp_path):
    write(tmp_path)

    for name in ("messages_pb2.py", "messages_pb2.pyi"):
        path = f"app/compat/cyxwiz/{name}"
        assert (tmp_path / path).read_text() == (ROOT / path).read_text(), "python -m scripts.generated_messages"


def test_every_field_arrives_where_the_native_document_has_it():
    native = to_native(
        config(
            job_id="night-7",
            learning_rate=2e-4,
            required_device=pb.CUDA,
            min_memory_mb=16_000,
            priority=8,
            timeout_seconds=3600,
            max_output_size_mb=500,
        )
    )

    assert native.document == {
        "name": "night-7",
        "training_config": {
            "training_type": "SFT",
            "framework": {"type": "HF_TRAINER"},
            "base_model": {"model_id": "/srv/models/base"},
            "hyperparameters": {"num_train_epochs": "3", "learning_rate": "0.0002"},
        },
        "data_config": {"batch_size": 8, "sources": [{"path": "/srv/data/train.jsonl"}]},
        "resource_config": {"gpu_count": 1, "device_type": "cuda", "gpu_memory_min_mb": 16_000},
        "output_config": {"max_output_size_mb": 500},
        "scheduling_config": {"priority": 8, "max_runtime_seconds": 3600},
    }
    assert native.foreign == {DIALECT: {"job_id": "night-7", "plain_model": True}}


def test_memory_is_that_of_the_node_where_no_gpu_is_asked_for():
    native = to_native(config(required_device=pb.CPU, min_memory_mb=16_000))

    assert native.document["resource_config"] == {"gpu_count": 1, "device_type": "cpu", "ram_min_mb": 16_000}


def test_the_model_may_bring_parts_of_a_native_document():
    parts = {
        "training_config": {
            "training_type": "LORA",
            "base_model": {"model_id": "/srv/m"},
            "hyperparameters": {"lora_r": "8"},
        },
        "resource_config": {"gpu_count": 2},
        "labels": {"team": "support"},
    }

    document = to_native(config(model_config=json.dumps(parts))).document

    assert document["training_config"]["training_type"] == "LORA"
    assert document["training_config"]["framework"] == {"type": "HF_TRAINER"}
    assert document["training_config"]["hyperparameters"] == {"lora_r": "8", "num_train_epochs": "3"}
    assert (document["resource_config"], document["labels"]) == ({"gpu_count": 2}, {"team": "support"})


DEFINITION = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "tokenizer_id": "/srv/tokenizer"}


def test_the_definition_of_a_model_is_trained_from_scratch():
    native = to_native(config(model_config=json.dumps(DEFINITION)))

    base = native.document["training_config"]["base_model"]
    assert base == {
        "model_id": "none",
        "from_config": {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2},
        "tokenizer_id": "/srv/tokenizer",
    }
    assert json.loads(given_back(native).model_config) == DEFINITION


@pytest.mark.parametrize(
    ("changes", "field", "why"),
    [
        ({"required_device": pb.OPENCL}, "required_device", "set CUDA, CPU"),
        ({"dataset_uri": " "}, "dataset_uri", "must not be empty"),
        ({"model_config": ""}, "model_config", "must not be empty"),
        ({"epochs": 0}, "epochs", "greater than 0"),
        ({"batch_size": -1}, "batch_size", "greater than 0"),
        ({"timeout_seconds": -1}, "timeout_seconds", "or omitted"),
        ({"job_id": "a/b"}, "job_id", "a name of 1 to 128"),
        ({"job_id": "job-0197d2a4-7c1e-7d3a-9f53-1d2c5b0a9e11"}, "job_id", "not a native job id"),
        ({"priority": 11}, "priority", "must be 1 to 10, or omitted"),
        ({"model_config": "{"}, "model_config", "must be a model's id"),
        ({"model_config": '["gpt2"]'}, "model_config", "must be a model's id"),
        ({"model_config": '{"model": 1}'}, "model_config", "model is unknown; known: training_config"),
        ({"model_config": '{"model_type": "llama"}'}, "model_config.tokenizer_id", "needs tokenizer_id"),
        (
            {"model_config": '{"data_config": {"batch_size": 4}}'},
            "model_config.data_config.batch_size",
            "is set by batch_size",
        ),
    ],
)
def test_what_no_node_would_accept_is_refused_with_its_field(changes, field, why):
    with pytest.raises(BadSpec, match=why) as refused:
        to_native(config(**changes))

    assert refused.value.field == field


@pytest.mark.long
@given(
    st.builds(
        config,
        job_id=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._\- ]{0,127}", fullmatch=True) | st.just(""),
        model_config=st.from_regex(r"/srv/[a-z0-9]{1,40}", fullmatch=True),
        dataset_uri=st.from_regex(r"/srv/[a-z0-9]{1,40}\.jsonl", fullmatch=True),
        epochs=st.integers(1, 2**31 - 1),
        batch_size=st.integers(1, 4096),
        learning_rate=st.floats(0, 1, allow_nan=False),
        required_device=st.sampled_from((0, pb.CPU, pb.CUDA)),
        min_memory_mb=st.integers(0, 2**31 - 1),
        priority=st.integers(0, 10),
        timeout_seconds=st.integers(0, 316_224_000),
        max_output_size_mb=st.integers(0, 2**53 - 1),
    )
)
def test_what_was_submitted_is_given_back(submitted):
    native = to_native(submitted)

    returned = given_back(native)

    if not submitted.job_id:
        returned.job_id = ""  # the one that it was given
    assert returned == submitted


def test_what_has_no_field_of_its_own_is_given_back_within_the_model():
    parts = {
        "training_config": {
            "base_model": {"model_id": "/srv/m"},
            "hyperparameters": {"lora_r": "8"},
            "training_type": "LORA",
            "framework": {"type": "FSDP"},
        }
    }

    returned = json.loads(given_back(to_native(config(model_config=json.dumps(parts)))).model_config)

    assert returned["training_config"]["hyperparameters"] == {"lora_r": "8"}
    assert returned["training_config"]["framework"]["type"] == "FSDP"
    assert "sources" not in returned["data_config"]


def test_table_of_fields_has_those_of_the_request():
    assert list(FIELDS) == list(field_paths(body_of(pb.JobConfig)()))


def test_every_native_state_is_one_of_cyxwiz():
    assert set(STATES) == set(JobState)
    assert {state: pb.JobStatus.State.Name(shown) for state, (shown, _) in STATES.items()} == {
        JobState.PENDING: "PENDING",
        JobState.QUEUED: "PENDING",
        JobState.SCHEDULING: "ASSIGNED",
        JobState.PREPARING: "ASSIGNED",
        JobState.TRAINING: "RUNNING",
        JobState.CHECKPOINTING: "RUNNING",
        JobState.EVALUATING: "RUNNING",
        JobState.SERVING: "RUNNING",
        JobState.EXPORTING: "RUNNING",
        JobState.PAUSED: "PAUSED",
        JobState.COMPLETED: "COMPLETED",
        JobState.FAILED: "FAILED",
        JobState.CANCELLED: "CANCELLED",
        JobState.PREEMPTED: "PENDING",
    }


def test_metrics_that_are_not_numbers_are_returned_unchanged():
    assert str(numbers({"loss": "NaN", "rate": 1})) == "{'loss': nan, 'rate': 1.0}"
