"""OpenAI's fine-tuning jobs, both ways; every answer is one of its own client's types."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from openai.types.fine_tuning import FineTuningJob, FineTuningJobEvent
from openai.types.fine_tuning.jobs import FineTuningJobCheckpoint

from app.compat.openai.fine_tuning.checkpoints import checkpoint_of
from app.compat.openai.fine_tuning.data_files import UploadedDataFile, refuse_unfit
from app.compat.openai.fine_tuning.events import WAITS, event_id_of, events_of, step_of_id, waiting_of
from app.compat.openai.fine_tuning.from_native import STATUSES, job_of, native_id
from app.compat.openai.fine_tuning.naming import naming_of, renamed
from app.compat.openai.fine_tuning.schemas import CreateJobSchema
from app.compat.openai.fine_tuning.to_native import Native, ResolvedRequest, to_native
from app.domain.errors import BadSpec, InvalidRequest, NotFound
from app.domain.ids import new_id
from app.domain.lifecycle.events import EventType
from app.domain.lifecycle.states import JobState
from app.http.errors import BadShape
from app.http.request_body import validated
from app.models import Job, JobEvent
from app.schemas.jobs import SubmitJobSchema
from app.services.jobs.details import JobDetails
from app.services.jobs.timeline import TrainedStep
from app.services.model_registry.resolving import BaseChoice
from tests.builders.factories import make_document

NOW = datetime(2026, 5, 17, 12, 0, tzinfo=UTC)
TRAINING, VALIDATION = new_id("file"), new_id("file")
MODEL = "ft:tiny:default:docs:3f9c2a1b"
STRING_CHECK = {
    "type": "string_check",
    "name": "right",
    "input": "{{ sample.output_text }}",
    "reference": "{{item.answer}}",
    "operation": "eq",
}
STEPS = {"max_steps": "5"}
SHAPES = {"supervised": "messages", "dpo": "preference", "reinforcement": "messages"}


def data_file(file_id: str = TRAINING, **changes: Any) -> UploadedDataFile:
    return UploadedDataFile(file_id, "fine-tune", "processed", "", 16_000, "messages")._replace(**changes)


def translated(training: UploadedDataFile | None = None, base: BaseChoice | None = None, **body: Any) -> Native:
    body = validated(CreateJobSchema(), {"model": "tiny", "training_file": TRAINING, **body})
    method = (body.get("method") or {"type": "supervised"})["type"]
    shape = SHAPES[method]
    asked = ResolvedRequest(
        body=body,
        base=base or BaseChoice(base_model={"model_id": "/srv/models/tiny"}, name="tiny"),
        training=training or data_file(shape=shape),
        validation=data_file(VALIDATION, shape=shape) if "validation_file" in body else None,
        drawn_seed=7,
    )
    native = to_native(asked)
    validated(SubmitJobSchema(), native.document)
    return native


def method(kind: str, settings: dict[str, Any] | None = None, **hyperparameters: Any) -> dict[str, Any]:
    return {"type": kind, kind: {"hyperparameters": hyperparameters, **(settings or {})}}


def made(native: Native | None = None, state: JobState = JobState.TRAINING, **columns: Any) -> JobDetails:
    """The details of a job with this document, or of one that another client submitted."""
    document = native.document if native is not None else make_document()
    values: dict[str, Any] = {
        "id": new_id("job"),
        "project": "default",
        "name": document["name"],
        "status": state,
        "status_reason": "",
        "spec": document,
        "foreign": native.foreign if native is not None else {},
        "training_type": document["training_config"]["training_type"],
        "tokens": 4096,
        "eta_seconds": 240.0,
        "current_step": 300,
        "total_steps": 900,
        "created_at": NOW,
        "updated_at": NOW,
        "finished_at": NOW + timedelta(hours=1),
    }
    return JobDetails(
        job=Job(**{**values, **columns}),
        stored=document,
        requested=None,
        pending_reason="needs 1 h100; free: 0",
        queue_position=3,
        elapsed_seconds=1.0,
        child_job_ids=(),
        estimated_start_at=NOW + timedelta(hours=2, minutes=5),
    )


def typed(job: dict[str, Any]) -> FineTuningJob:
    """Checked as the client itself does not: it has no status for a pause, which the service has."""
    status = "running" if job["status"] == "paused" else job["status"]
    return FineTuningJob.model_validate({**job, "status": status}, strict=True)


def test_supervised_job_is_an_adapter_with_the_numbers_that_auto_means() -> None:
    document = translated(suffix="docs", metadata={"team": "support"}).document

    assert document["name"] == "docs"
    assert document["labels"] == {"openai.team": "support"}
    assert document["training_config"]["training_type"] == "LORA"
    assert document["training_config"]["hyperparameters"] == {"num_train_epochs": "2"}
    assert document["data_config"] == {
        "sources": [{"path": TRAINING, "split": "train"}],
        "seed": 7,
        "batch_size": 8,
        "gradient_accumulation_steps": 4,
    }


@pytest.mark.parametrize("place", ["hyperparameters", "method"])
def test_numbers_are_taken_as_they_are_from_both_places(place: str) -> None:
    numbers: dict[str, Any] = {"n_epochs": 4, "batch_size": 6, "learning_rate_multiplier": 0.5}

    body: dict[str, Any] = {place: numbers if place == "hyperparameters" else method("supervised", **numbers)}

    native = translated(**body)

    assert native.document["training_config"]["hyperparameters"] == {"num_train_epochs": "4", "learning_rate": "0.0001"}
    assert native.document["data_config"]["batch_size"] == 6
    assert job_of(made(native))["hyperparameters"] == numbers


def test_preferences_are_trained_with_an_adapter() -> None:
    training = translated(method=method("dpo", beta=0.2, learning_rate_multiplier=2)).document["training_config"]

    assert training["training_type"] == "DPO"
    assert {**training["hyperparameters"], "num_train_epochs": ""} == {
        "use_lora": "true",
        "beta": "0.2",
        "num_train_epochs": "",
        "learning_rate": "2e-06",
    }


def test_reinforcement_compares_completions_of_each_record_of_a_batch() -> None:
    settings = method("reinforcement", {"grader": STRING_CHECK}, batch_size=4, compute_multiplier=2, eval_interval=50)

    native = translated(method=settings, validation_file=VALIDATION)

    training, data = native.document["training_config"], native.document["data_config"]
    assert training["hyperparameters"]["reward"] == "exact:answer"
    assert training["hyperparameters"]["num_generations"] == "16"
    assert training["evaluation"] == {"strategy": "steps", "steps": 50}
    assert data["batch_size"] * data["gradient_accumulation_steps"] == 4 * 16
    assert typed(job_of(made(native))).hyperparameters.batch_size == 4


def test_parts_of_a_job_document_are_merged() -> None:
    extra = {
        "resource_config": {"gpu_count": 2},
        "training_config": {"training_type": "SFT", "hyperparameters": {"warmup_ratio": "0.1"}},
        "labels": {"cost": "a"},
        "tracking": None,
    }

    document = translated(trainyard=extra, metadata={"team": "b"}, hyperparameters={"batch_size": 32}).document

    assert document["labels"] == {"cost": "a", "openai.team": "b"}
    assert document["training_config"]["training_type"] == "SFT"
    assert document["data_config"]["batch_size"] * document["data_config"]["gradient_accumulation_steps"] * 2 == 32
    assert extra["labels"] == {"cost": "a"}


def test_adapter_that_is_trained_further_brings_its_hyperparameters() -> None:
    model = {"model_id": "none", "job_id": new_id("job")}
    base = BaseChoice(base_model=model, name=MODEL, hyperparameters={"lora_r": "4"}, adapter=True)

    training = translated(base=base).document["training_config"]

    assert (training["base_model"], training["hyperparameters"]["lora_r"]) == (model, "4")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"method": method("dpo"), "training": {"shape": "messages"}}, "training_file"),
        ({"training": {"shape": "preference"}}, "training_file"),
        ({"training": {"purpose": "batch"}}, "training_file"),
        ({"training": {"status": "error", "status_details": "line 3: is not JSON"}}, "training_file"),
        ({"training": {"records": None}}, "training_file"),
        ({"training": {"records": 5}, "hyperparameters": {"batch_size": 6}}, "hyperparameters.batch_size"),
        ({"hyperparameters": {"learning_rate_multiplier": 100_000}}, "hyperparameters.learning_rate_multiplier"),
        ({"hyperparameters": {"n_epochs": 1}, "method": method("supervised", n_epochs=2)}, "hyperparameters"),
        ({"hyperparameters": {"n_epochs": 1}, "method": method("dpo")}, "hyperparameters"),
        ({"method": {**method("dpo"), "supervised": {}}}, "method.supervised"),
        ({"method": method("reinforcement")}, "method.reinforcement.grader"),
        ({"method": method("reinforcement", {"grader": {"type": "python"}})}, "method.reinforcement.grader.source"),
        (
            {"method": method("reinforcement", {"grader": STRING_CHECK}, compute_multiplier=0.1)},
            "method.reinforcement.hyperparameters.compute_multiplier",
        ),
        (
            {"hyperparameters": {"n_epochs": 2}, "trainyard": {"training_config": {"hyperparameters": STEPS}}},
            "hyperparameters.n_epochs",
        ),
        ({"trainyard": {"resource": {}}}, "trainyard.resource"),
        ({"trainyard": {"data_config": []}}, "trainyard.data_config"),
        ({"seed": 1, "trainyard": {"data_config": {"seed": 1}}}, "trainyard.data_config.seed"),
        (
            {"trainyard": {"resource_config": {"gpu_count": 4}}, "hyperparameters": {"batch_size": 6}},
            "hyperparameters.batch_size",
        ),
        ({"trainyard": {"training_config": {"training_type": "DPO"}}}, "trainyard.training_config.training_type"),
    ],
)
def test_contradictions_name_the_field_of_the_client(body: dict[str, Any], field: str) -> None:
    changes = {"shape": None, **body.pop("training", {})}

    with pytest.raises(InvalidRequest) as raised:
        translated(data_file(**changes), **body)

    assert raised.value.field == field


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"hyperparameters": {"n_epochs": 0}}, "hyperparameters.n_epochs"),
        ({"method": method("supervised", learning_rate_multiplier=-1)}, "method.supervised.hyperparameters"),
        ({"method": method("dpo", n_epochs=True)}, "method.dpo.hyperparameters.n_epochs"),
        ({"suffix": "with spaces"}, "suffix"),
        ({"metadata": {str(number): "" for number in range(17)}}, "metadata"),
        ({"seed": -1}, "seed"),
        ({"modle": "tiny"}, "modle"),
        ({"method": {"type": "sft"}}, "method.type"),
        ({"integrations": [{"type": "wandb", "wandb": {}}]}, "integrations.0.wandb.project"),
    ],
)
def test_values_out_of_range_are_refused(body: dict[str, Any], field: str) -> None:
    with pytest.raises(BadShape) as raised:
        translated(**body)

    assert raised.value.details[0][0].startswith(field)


@pytest.mark.parametrize("kind", [BadSpec, NotFound])
def test_errors_about_the_document_name_the_field_of_the_client(kind: type[BadSpec | NotFound]) -> None:
    naming = naming_of("dpo", top_level=False)

    with pytest.raises(kind) as raised, renamed(naming):
        raise kind("num_train_epochs must not be 5", field="training_config.hyperparameters.num_train_epochs")

    assert raised.value.field == "method.dpo.hyperparameters.n_epochs"
    assert naming.field("data_config.sources.1.path") == "validation_file"
    assert naming.field("resource_config.gpu_count") == "trainyard.resource_config.gpu_count"


@pytest.mark.parametrize("state", JobState)
def test_job_in_every_state_is_one_of_the_client(state: JobState) -> None:
    native = translated(suffix="docs", seed=7, metadata={"team": "a"}, validation_file=VALIDATION)
    details = made(native, state, error_type="DATA_INVALID", error_message=f"{VALIDATION}: line 3: is not JSON")

    job = job_of(details, MODEL)

    found = typed(job)
    assert job["status"] == STATUSES[state]
    assert (found.model, found.training_file, found.validation_file) == ("tiny", TRAINING, VALIDATION)
    assert (found.seed, found.metadata) == (7, {"team": "a"})
    assert (found.fine_tuned_model == MODEL) is (state is JobState.COMPLETED)
    assert (found.estimated_finish is not None) is (job["status"] == "running")
    assert (found.finished_at is None) is (found.trained_tokens is None)
    assert found.error is None or (found.error.code, found.error.param) == ("DATA_INVALID", "validation_file")
    assert (found.error is not None) is (state is JobState.FAILED)
    assert native_id(found.id) == details.job.id


@pytest.mark.parametrize("kind", ["supervised", "dpo", "reinforcement"])
def test_answer_says_what_was_asked(kind: str) -> None:
    settings = {"grader": STRING_CHECK} if kind == "reinforcement" else {}
    asked = method(kind, settings, n_epochs=2, batch_size=4, learning_rate_multiplier=0.3)

    found = typed(job_of(made(translated(method=asked))))

    assert found.method is not None
    assert found.method.type == kind
    said = found.method.to_dict()[kind]
    assert isinstance(said, dict)
    assert said["hyperparameters"] == {**said["hyperparameters"], **asked[kind]["hyperparameters"]}
    assert said.get("grader") == settings.get("grader")


@pytest.mark.parametrize("training_type", ["SFT", "DPO", "RLHF", "CONTINUED_PRETRAIN"])
def test_job_of_another_client_is_a_fine_tuning_job(training_type: str) -> None:
    details = made(state=JobState.COMPLETED, training_type=training_type)

    found = typed(job_of(details))

    assert found.fine_tuned_model == details.job.id
    assert found.training_file == "/srv/data/train.jsonl"


def test_answer_has_what_is_trained_and_no_suffix_that_nobody_asked_for() -> None:
    asked = method("reinforcement", {"grader": STRING_CHECK}, compute_multiplier=0.3)

    answered = job_of(made(translated(method=asked)))

    assert answered["method"]["reinforcement"]["hyperparameters"]["compute_multiplier"] == 0.25
    assert answered["user_provided_suffix"] is None


def test_steps_and_history_are_events_of_the_client() -> None:
    details = made()
    row = {"job_id": details.job.id, "at": NOW, "data": {}, "message": "", "reason": ""}
    kinds = [{"type": EventType.STATUS, "to_status": state} for state in JobState]
    kinds += [{"type": kind} for kind in EventType if kind is not EventType.STATUS]
    rows = [JobEvent(**{**row, "id": new_id("evt"), "seq": seq, **kind}) for seq, kind in enumerate(kinds)]
    measured: dict[str, float | str] = {"loss": 1.52, "mean_token_accuracy": 0.61, "eval_loss": 1.49, "reward": "NaN"}
    step = TrainedStep(step=300, at=NOW, values=measured)
    saved = JobEvent(**{**row, "id": new_id("evt"), "type": EventType.CHECKPOINT_SAVED, "data": {"step": 300}})

    found = [FineTuningJobEvent.model_validate(each, strict=True) for each in events_of(details, [*rows, step], MODEL)]

    assert all(each.message for each in found)
    assert {each.level for each in found} == {"info", "warn", "error"}
    assert found[-1].message == (
        "Step 300/900: training loss=1.52, token accuracy=0.61, validation loss=1.49, about 4 min left"
    )
    assert found[-1].data == {
        "step": 300,
        "total_steps": 900,
        "train_loss": 1.52,
        "train_mean_token_accuracy": 0.61,
        "valid_loss": 1.49,
        "full_valid_loss": 1.49,
    }
    assert (event_id_of(found[0].id), step_of_id(found[-1].id)) == (rows[0].id, 300)
    assert events_of(details, [saved], MODEL)[0]["message"] == f"New checkpoint: {MODEL}:ckpt-step-300"


def test_failure_is_an_event_with_the_error_word_for_word() -> None:
    details = made(state=JobState.FAILED, error_message="line 3: messages.1.content: must be a text")
    row = {"id": new_id("evt"), "at": NOW, "data": {}, "message": "", "type": EventType.STATUS}

    event = events_of(details, [JobEvent(**row, to_status=JobState.FAILED)], MODEL)[0]

    assert (event["level"], event["message"]) == ("error", "line 3: messages.1.content: must be a text")


def test_unknown_column_of_a_grader_names_its_reference() -> None:
    said = "reward exact: the records have no column answer; they have id, solution. Name one, as in exact:solution"
    details = made(state=JobState.FAILED, error_type="INVALID_CONFIG", error_message=said)
    row = {"id": new_id("evt"), "at": NOW, "data": {}, "message": said, "type": EventType.STATUS}

    event = events_of(details, [JobEvent(**row, to_status=JobState.FAILED)], MODEL)[0]
    message = "{{item.answer}}: the records have no answer; they have id, solution"
    assert job_of(details)["error"] == {
        "code": "INVALID_CONFIG",
        "message": message,
        "param": "method.reinforcement.grader.reference",
    }
    assert event["message"] == message


def test_job_is_started_once() -> None:
    row = {"at": NOW, "data": {}, "message": "", "type": EventType.STATUS, "to_status": JobState.TRAINING}
    before = (JobState.PREPARING, JobState.EVALUATING)
    rows = [JobEvent(**row, id=new_id("evt"), from_status=each) for each in before]

    found = events_of(made(), [*rows], MODEL)

    assert [each["message"] for each in found] == ["Fine-tuning job started", "Training continues"]


def test_event_says_why_a_job_waits() -> None:
    event = waiting_of(made(state=JobState.QUEUED), NOW)

    assert event is not None
    assert FineTuningJobEvent.model_validate(event, strict=True).id == WAITS
    assert event["message"] == "The job waits: needs 1 h100; free: 0. Expected to start 14:05 UTC. Position 3."
    assert waiting_of(made(), NOW) is None


def test_checkpoint_is_one_of_the_client() -> None:
    job = made().job
    metrics = {"loss": 1.5, "eval_loss": 1.4, "learning_rate": 1e-4}
    row = SimpleNamespace(id=new_id("ckpt"), step=300, metrics=metrics, created_at=NOW)

    found = FineTuningJobCheckpoint.model_validate(checkpoint_of(job, row, MODEL), strict=True)

    assert found.fine_tuned_model_checkpoint == f"{MODEL}:ckpt-step-300"
    assert (found.metrics.step, found.metrics.train_loss, found.metrics.full_valid_loss) == (300, 1.5, 1.4)


def test_file_with_many_problems_is_refused_with_the_first() -> None:
    broken = data_file(status="error", status_details="line 1: is not JSON\nline 2: is not JSON\nline 3: is missing")
    with pytest.raises(BadSpec) as refused:
        refuse_unfit(broken, "supervised", "training_file")
    assert str(refused.value) == f"{TRAINING} can't be used: line 1: is not JSON (and 2 more)"
