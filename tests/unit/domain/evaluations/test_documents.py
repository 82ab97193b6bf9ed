"""Documents of evaluations: datasets as sources, and records read as the training of the model read them."""

from typing import Any

import pytest

from app.domain.evaluations.documents import LONGEST_NAME, EvaluationOptions, Subject, as_asked, default_name, document
from app.domain.spec.inference import Benchmark, ModelReference
from app.domain.spec.model import BaseModel, DataConfig, JobDocument, PlannedBenchmark
from tests.builders.submitted import changed

PLACE = Subject(base=BaseModel().changed(model_id="/srv/models/tiny"), model=ModelReference())


def planned(name: str, path: str | None = "/srv/a.jsonl", **more: Any) -> PlannedBenchmark:
    dataset = {"dataset": {"path": path}} if path is not None else {}
    return PlannedBenchmark.from_json({"name": name, **dataset, **more})


def made_by(*changes: tuple[str, Any]) -> Subject:
    trained = JobDocument.from_json(changed(*changes))
    return Subject(
        base=BaseModel().changed(model_id="none"), model=ModelReference().changed(job_id="job-1"), trained=trained
    )


def measured(
    subject: Subject, *benchmarks: PlannedBenchmark, **options: Any
) -> tuple[DataConfig, tuple[Benchmark, ...]]:
    found = document(subject, benchmarks, EvaluationOptions(**options))
    assert found.inference is not None
    return found.data_config, found.inference.benchmarks


def test_equal_datasets_are_one_source() -> None:
    data, benchmarks = measured(PLACE, planned("f1"), planned("bleu", "/srv/b.jsonl"), planned("contains"))

    assert [source.path for source in data.sources] == ["/srv/a.jsonl", "/srv/b.jsonl"]
    assert [each.dataset for each in benchmarks] == [0, 1, 0]


def test_benchmarks_are_shown_as_they_were_asked_for() -> None:
    asked = [planned("f1", num_samples=3, parameters={"normalize": "none"}), planned("lm_eval:x", None)]

    shown = as_asked(document(PLACE, asked, EvaluationOptions()))

    assert shown == [
        {"name": "f1", "dataset": {"path": "/srv/a.jsonl"}, "num_samples": 3, "parameters": {"normalize": "none"}},
        {"name": "lm_eval:x", "dataset": None, "num_samples": None, "parameters": {}},
    ]


def test_document_survives_being_stored() -> None:
    found = document(PLACE, [planned("f1")], EvaluationOptions(seed=3, labels={"team": "a"}))

    assert JobDocument.from_json(found.to_json()) == found
    assert (found.kind, found.labels) == ("evaluation", {"type": "evaluation", "team": "a"})


def test_records_are_read_as_the_training_read_them() -> None:
    trained = made_by(
        ("data_config.max_seq_length", 64),
        ("data_config.preprocess", {"field_mapping": {"text": "body"}}),
        ("data_config.validation_split", 0.5),
    )

    data, _ = measured(trained, planned("f1"))

    assert (data.max_seq_length, data.preprocess.field_mapping) == (64, {"text": "body"})
    assert data.validation_split == 0.0


def test_own_data_options_replace_those_of_the_training() -> None:
    trained = made_by(("data_config.max_seq_length", 64))

    data, _ = measured(trained, planned("f1"), data=DataConfig.from_json({"seed": 5}))

    assert (data.max_seq_length, data.seed) == (DataConfig.max_seq_length, 5)


@pytest.mark.parametrize(
    ("training", "given", "expected"),
    [
        ({}, {}, {"batch_size": 4}),
        ({"training_type": "CONTINUED_PRETRAIN"}, {}, {"batch_size": 4, "records_as": "CONTINUED_PRETRAIN"}),
        ({"hyperparameters": {"completion_only_loss": "false"}}, {}, {"batch_size": 4, "completion_only_loss": False}),
        ({}, {"batch_size": 2}, {"batch_size": 2}),
    ],
)
def test_loss_counts_as_in_the_training(
    training: dict[str, Any], given: dict[str, Any], expected: dict[str, Any]
) -> None:
    changes = [(f"training_config.{name}", value) for name, value in training.items()]
    trained = made_by(("data_config.batch_size", 4), *changes)

    _, (loss, other) = measured(trained, planned("loss", parameters=given), planned("f1"))

    assert (loss.parameters, other.parameters) == (expected, {})


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("/srv/models/tiny/", "evaluation of tiny"),
        ("s3://bucket/naïve model", "evaluation of na-ve model"),
        ("org/" + "m" * 500, None),
    ],
)
def test_name_is_by_default_that_of_the_model(model: str, name: str | None) -> None:
    found = default_name(Subject(base=BaseModel().changed(model_id=model), model=ModelReference()))

    assert len(found) <= LONGEST_NAME
    assert name in (None, found)


def test_name_of_a_checkpoint_is_its_id() -> None:
    model = ModelReference().changed(job_id="job-1", checkpoint_id="ckpt-2")

    assert default_name(Subject(base=BaseModel(), model=model)) == "evaluation of ckpt-2"
