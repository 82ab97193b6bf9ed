"""What a tracking service gets of a job: its parameters and tags, and never a secret of it."""

import json
from typing import Any

from app.domain.spec.model import JobDocument
from app.security.secrets import SecretBox
from app.services.attempts.work_orders import WorkOrder
from app.services.sweeps import trials
from config.settings import load_settings
from tests.builders.submitted import changed, spec_of
from workers.tracking import relay, run_facts

KEY = "k" * 43 + "="
SETTINGS = load_settings({"TRAINYARD_SECURITY_SECRET_KEY": KEY, "TRAINYARD_TRACKING_ALLOW": "10.0.0.1"})


def work(*changes: tuple[str, Any]) -> WorkOrder:
    spec = spec_of(changed(("tracking", [{"kind": "mlflow", "url": "https://m.example", "token": "t0p"}]), *changes))
    return WorkOrder(
        job_id="job-1",
        project="default",
        name="support",
        attempt=2,
        fence=1,
        lease_id="lease-1",
        node="local",
        node_names=("local",),
        part=0,
        framework="HF_TRAINER",
        training_type="SFT",
        document=JobDocument.from_json(spec.document.to_json()),
        sealed_secrets=SecretBox(KEY).seal(dict(spec.secrets)),
        devices=(),
        threads_per_rank=1,
        resume=(),
        max_runtime_seconds=None,
        ran_seconds=0.0,
    )


def test_service_gets_its_token_and_the_run_no_secret() -> None:
    asked = run_facts.service_request(SETTINGS, work(("training_config.environment", {"API_TOKEN": "s3cret"})), 0)

    assert (asked["service"]["token"], asked["service"]["allow"]) == ("t0p", ["10.0.0.1"])
    sent = json.dumps(asked["facts"])
    assert "s3cret" not in sent
    assert "t0p" not in sent


def test_round_of_calls_has_more_time_than_one_call_and_ends_before_the_process_counts_as_hung() -> None:
    service = run_facts.service_request(SETTINGS, work(), 0)["service"]

    assert service["timeout_seconds"] == SETTINGS.tracking.timeout_seconds
    assert service["round_seconds"] == 4 * SETTINGS.tracking.timeout_seconds
    assert service["round_seconds"] < relay.TIMEOUTS_IN_AN_ANSWER * SETTINGS.tracking.timeout_seconds


def test_parameters_are_what_people_compare_runs_by() -> None:
    asked = run_facts.service_request(
        SETTINGS, work(("training_config.hyperparameters", {"learning_rate": "2e-4"}), ("data_config.batch_size", 4)), 0
    )

    params = asked["facts"]["params"]
    assert (params["learning_rate"], params["batch_size"], params["base_model"]) == ("2e-4", "4", "org/model")
    assert all(isinstance(value, str) for value in params.values())


def test_experiment_is_by_default_the_project() -> None:
    assert run_facts.service_request(SETTINGS, work(), 0)["facts"]["experiment"] == "default"
    assert (
        run_facts.service_request(SETTINGS, work(("tracking.0.experiment", "mine")), 0)["facts"]["experiment"] == "mine"
    )


def test_run_of_wandb_has_numbers_tags_and_the_sweep_as_its_group() -> None:
    tracker = {"kind": "wandb", "entity": "team", "token": "k" * 40}
    hyperparameters = {"learning_rate": "2e-4", "optim": "adamw_torch"}
    labels = {trials.SWEEP_LABEL: "sweep-1", "team": "a" * 80}
    changes = (
        ("labels", labels),
        ("training_config.hyperparameters", hyperparameters),
        ("training_config.resume_from_checkpoint", "ckpt-7"),
    )

    asked = run_facts.service_request(SETTINGS, work(("tracking", [tracker]), *changes), 0)

    facts = asked["facts"]
    assert (asked["service"]["url"], asked["service"]["token"]) == ("https://api.wandb.ai", "k" * 40)
    assert (facts["project"], facts["entity"], facts["group"]) == ("default", "team", "sweep-1")
    assert (facts["config"]["learning_rate"], facts["config"]["optim"]) == (2e-4, "adamw_torch")
    assert (facts["config"]["seed"], facts["config"]["started_from"]) == (42, "ckpt-7")
    assert [len(tag) for tag in facts["tags"] if tag.startswith("team=")] == [64]
    assert "k" * 40 not in json.dumps(facts)


def test_trial_and_fork_are_tagged() -> None:
    labels = {trials.SWEEP_LABEL: "sweep-1", trials.TRIAL_LABEL: "3", "team": "a"}
    asked = run_facts.service_request(
        SETTINGS, work(("labels", labels), ("training_config.resume_from_checkpoint", "ckpt-7")), 0
    )

    tags = asked["facts"]["tags"]
    assert (tags["trainyard.sweep_id"], tags["trainyard.trial"]) == ("sweep-1", "3")
    assert (tags["trainyard.started_from"], tags["trainyard.label.team"]) == ("ckpt-7", "a")
