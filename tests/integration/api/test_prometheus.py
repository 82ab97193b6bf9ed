"""Figures for Prometheus: right, in its format, and nothing of another project."""

import re
from collections.abc import Iterable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import yaml
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse

from app.domain.lifecycle.states import JobState
from app.models import Attempt, Inspection, ModelUsage, ServiceLoad, Webhook, WebhookDelivery
from app.models.base import utc_now
from app.security.permissions import Role
from app.services.operations.retention.context import RETENTION
from app.services.scheduling import planner
from app.services.sweeps import commands
from tests.builders.batches import make_batch
from tests.builders.factories import make_attempt, make_job, make_node, make_queue
from tests.builders.serving import make_service
from tests.builders.sweep_runs import SweepRun, constant
from tests.builders.sweeps import make_sweep, make_trial
from tests.systems.apps import Api

ROOT = Path(__file__).parents[3]
PAGE, ALERTS = ROOT / "docs/how-to/monitoring.md", ROOT / "deploy/prometheus/alerts.yml"
OPENMETRICS = "application/openmetrics-text; version=1.0.0"
Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def figures(api: Api, *, key: str | None = None) -> Series:
    answer = api.call("GET", "/metrics", key=key)
    assert answer.status_code == 200, answer.get_data(as_text=True)
    return by_labels(parse(answer.get_data(as_text=True)))


def by_labels(families: Iterable[Any]) -> Series:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def of(found: Series, name: str, **labels: str) -> float | None:
    return found.get((f"trainyard_{name}", tuple(sorted(labels.items()))))


def number(found: Series, name: str, **labels: str) -> float:
    value = of(found, name, **labels)
    assert value is not None, name
    return value


def test_jobs_are_counted_by_project_queue_and_state(api: Api) -> None:
    with api.db.write() as session:
        make_queue(session, "night")
        for _ in range(2):
            make_job(session)
        make_job(session, state=JobState.COMPLETED)
        make_job(session, project="other", queue="night", state=JobState.FAILED)

    found = figures(api)

    assert of(found, "jobs", project="default", queue="default", state="QUEUED") == 2
    assert of(found, "jobs", project="default", queue="default", state="COMPLETED") == 1
    assert of(found, "jobs", project="default", queue="default", state="TRAINING") == 0
    assert of(found, "jobs", project="other", queue="night", state="FAILED") == 1
    assert of(found, "jobs", project="other", queue="default", state="QUEUED") is None


def test_steps_that_trunks_spared_are_summed_by_project(api: Api) -> None:
    """Those of population based training are no trunks: what its forks begin with had other values."""
    with api.db.write() as session:
        sweep = make_sweep(session)
        make_trial(session, sweep)
        for step, source in ((13, "method"), (7, "enqueued"), (100, "exploited")):
            make_trial(session, sweep, parent_number=0, fork_step=step, source=source)

    assert of(figures(api), "trunk_steps", project="default") == 20


def test_what_sweeps_took_and_spared_outlives_them(api: Api) -> None:
    """Two trials by asha: the second is stopped at step 3 of 27, after three hours on one device."""
    run = SweepRun(
        api, early_stopping={"name": "asha", "min": 3, "max": 27}, budget={"max_trials": 2, "parallel_trials": 2}
    )
    with closing(run):
        run.step()
        for trial, value in ((0, 1.0), (1, 2.0)):
            run.train(trial, to=3, curve=constant(value))
            run.step()
        run.end(1, JobState.CANCELLED, elapsed_seconds=3 * 3600.0)
        run.train(0, curve=constant(1.0))
        run.end(0)
        while run.sweep().finished_at is None:
            run.step()
    commands.delete(run.plane, RETENTION, run.id)

    found = figures(api)

    mine = {"project": "default"}
    assert of(found, "sweep_suggestion_seconds_count", **mine) == 2
    assert of(found, "sweep_suggestion_seconds_bucket", **mine, le="+Inf") == 2
    assert of(found, "sweep_decision_seconds_count", **mine) == len([3, 9, 27, 3])
    assert 0 < number(found, "sweep_decision_seconds_sum", **mine) < 60
    assert of(found, "sweep_device_hours_spared", **mine, by="stopping") == 24
    assert of(found, "sweep_device_hours_spared", **mine, by="trunks") is None
    assert of(figures(api, key=api.make_key(Role.VIEWER, "other")), "sweep_suggestion_seconds_count", **mine) is None


def test_waits_are_a_histogram_that_only_grows(api: Api) -> None:
    now = utc_now()
    with api.db.write() as session:
        make_node(session, devices=3)
        for seconds in (0, 100, 200_000):
            make_job(session, queued_at=now - timedelta(seconds=seconds))
        make_job(session, queued_at=now - timedelta(seconds=50))
    assert len(planner.plan_once(api.db)) == 3

    found = figures(api)

    place = {"project": "default", "queue": "default"}
    assert of(found, "queue_wait_seconds_bucket", **place, le="15.0") == 0
    assert of(found, "queue_wait_seconds_bucket", **place, le="60.0") == 1
    assert of(found, "queue_wait_seconds_bucket", **place, le="300.0") == 2
    assert of(found, "queue_wait_seconds_bucket", **place, le="86400.0") == 2
    assert of(found, "queue_wait_seconds_bucket", **place, le="+Inf") == 3
    assert of(found, "queue_wait_seconds_count", **place) == 3
    assert 200_150 <= number(found, "queue_wait_seconds_sum", **place) < 200_180
    assert 0 <= number(found, "oldest_queued_seconds", **place) < 30


def test_speeds_are_those_of_jobs_that_train(api: Api) -> None:
    fast = {"step_seconds": 0.5, "tokens_per_second": 1000.0, "gpu_utilization": 90.0, "loss": 1.5}
    odd = {"step_seconds": 0.0, "tokens_per_second": "NaN", "gpu_utilization": 70}
    with api.db.write() as session:
        make_job(session, state=JobState.TRAINING, latest_metrics=fast)
        make_job(session, state=JobState.TRAINING, latest_metrics=odd)
        make_job(session, state=JobState.COMPLETED, latest_metrics=fast)
        make_job(session, state=JobState.TRAINING, project="other", latest_metrics={"step_seconds": 4.0})

    found = figures(api)

    mine, others = {"project": "default", "queue": "default"}, {"project": "other", "queue": "default"}
    assert of(found, "steps_per_second", **mine) == 2.0
    assert of(found, "steps_per_second", **others) == 0.25
    assert of(found, "tokens_per_second", **mine) == 1000.0
    assert of(found, "tokens_per_second", **others) is None
    assert of(found, "gpu_utilization_percent", **mine) == 80.0


def test_machines_and_queues_are_described(api: Api) -> None:
    now = utc_now()
    with api.db.write() as session:
        job = make_job(session, state=JobState.TRAINING)
        node = make_node(session, "a", devices=4, device_type="h200", last_seen_at=now - timedelta(seconds=30))
        make_attempt(session, job, node, device_indices=(0,))
        make_node(session, "b", devices=2, state="drained")
        night = make_queue(session, "night")
        night.is_paused, night.max_running_jobs = True, 3

    found = figures(api)

    assert [of(found, "nodes", state=state) for state in ("ready", "drained", "lost")] == [1, 1, 0]
    assert 30 <= number(found, "node_silent_seconds", node="a") < 60
    assert [of(found, name, type="h200") for name in ("devices", "devices_in_use", "devices_free")] == [4, 1, 3]
    assert [of(found, name, type="cpu") for name in ("devices", "devices_in_use", "devices_free")] == [2, 0, 0]
    assert of(found, "devices_share_in_use", type="h200") == 1
    assert [of(found, "queue_paused", queue=queue) for queue in ("default", "night")] == [0, 1]
    assert of(found, "queue_max_running_jobs", queue="night") == 3
    assert of(found, "queue_max_running_jobs", queue="default") is None
    assert of(found, "queue_max_waiting_jobs", queue="night") is None


def test_services_are_exported_with_what_gateways_count(api: Api) -> None:
    now = utc_now()
    with api.db.write() as session:
        support = make_service(session, wanted=3)
        make_service(session, "gone", ended_at=now, status="ENDED")
        for gateway, seconds in (("a", 1), ("b", 2), ("silent", 60)):
            at = now - timedelta(seconds=seconds)
            session.add(ServiceLoad(service_id=support.id, gateway=gateway, in_flight=4, waiting=1, at=at))
        usage = {"key_id": "key-1", "model": "support", "project": "default", "service_id": support.id}
        for day in (now.date(), now.date() - timedelta(days=1)):
            session.add(ModelUsage(day=day, prompt_tokens=70, completion_tokens=7, **usage))

    found = figures(api)

    assert [of(found, "services", project="default", state=state) for state in ("ACTIVE", "ENDED")] == [1, 1]
    assert of(found, "service_replicas_wanted", project="default", service="support") == 3
    requests = [
        of(found, "service_requests", project="default", service="support", state=s) for s in ("in_flight", "waiting")
    ]
    assert requests == [8, 2]
    assert of(found, "service_requests", project="default", service="gone", state="waiting") is None
    assert of(found, "model_tokens_today", project="default", kind="prompt") == 70
    assert of(found, "model_tokens_today", project="default", kind="completion") == 7
    assert (
        of(figures(api, key=api.make_key(Role.VIEWER, "other")), "services", project="default", state="ACTIVE") is None
    )


def test_batches_are_exported_by_state(api: Api) -> None:
    with api.db.write() as session:
        make_batch(session)
        make_batch(session, id="batch-2", status="completed", ended_at=utc_now())

    found = figures(api)

    values = [of(found, "batches", project="default", state=state) for state in ("validating", "completed", "failed")]
    assert values == [1, 1, 0]


def test_lags_and_backlogs_are_exported(api: Api) -> None:
    now = utc_now()
    with api.db.write() as session:
        node = make_node(session, "a", devices=4)
        silent = make_attempt(session, make_job(session, state=JobState.TRAINING), node, device_indices=(0,))
        silent.renewed_at = now - timedelta(seconds=12)
        unclaimed = make_attempt(
            session, make_job(session, state=JobState.SCHEDULING), node, device_indices=(1,), claimed=False
        )
        unclaimed.created_at = now - timedelta(seconds=40)
        for hours in (1, 23, 25):
            ended = make_job(session, state=JobState.FAILED)
            make_attempt(session, ended, node, device_indices=()).released_at = now
            attempt = session.get_one(Attempt, (ended.id, 1))
            attempt.cause, attempt.ended_at = "OUTCOME_ERROR", now - timedelta(hours=hours)
            ended.status, ended.mirrored_version = JobState.FAILED, ended.version
        make_job(session, state=JobState.PENDING, created_at=now - timedelta(seconds=70))
        session.add_all(
            [
                Inspection(id="insp-1", project="default", state="waiting"),
                Inspection(id="insp-2", project="default", state="done", verdict="passed", finished_at=now),
                Webhook(id="hook-1", project="default", url="https://example.org", event_types=[], sealed_secret=""),
            ]
        )
        session.flush()
        for index, state in enumerate(("waiting", "waiting", "delivered")):
            session.add(
                WebhookDelivery(
                    id=f"dlv-{index}",
                    webhook_id="hook-1",
                    event_id=f"evt-{index}",
                    event_type="job.status",
                    payload={},
                    state=state,
                )
            )
    planner.renew_leadership(api.db, "box:boot:1:2")
    planner.beat(api.db, "coordinator@box", "box:boot:1:2")

    found = figures(api)

    assert 12 <= number(found, "lease_silent_seconds") < 40
    assert 40 <= number(found, "oldest_unclaimed_seconds") < 70
    assert 70 <= number(found, "oldest_pending_seconds") < 100
    assert 0 <= number(found, "planner_silent_seconds") < 30
    assert (of(found, "coordinators"), of(found, "leases"), of(found, "mirror_backlog_jobs")) == (1, 2, 3)
    assert of(found, "outcome_errors") == 2
    assert of(found, "webhook_deliveries_waiting") == 2
    assert [of(found, "preflights", state=state) for state in ("waiting", "running")] == [1, 0]
    assert of(found, "preflights_remembered", verdict="passed") == 1


def test_a_system_that_never_ran_has_figures_too(api: Api) -> None:
    found = figures(api)

    assert of(found, "lease_silent_seconds") == 0
    assert of(found, "planner_silent_seconds") is None
    assert (of(found, "coordinators"), of(found, "nodes", state="ready")) == (0, 0)


def test_a_project_reads_its_own_jobs_and_nothing_of_the_cluster(api: Api) -> None:
    with api.db.write() as session:
        make_node(session, devices=4)
        for project in ("default", "other"):
            make_job(session, project=project)
            make_job(session, project=project, state=JobState.TRAINING, latest_metrics={"step_seconds": 1.0})
    planner.plan_once(api.db)

    found = figures(api, key=api.make_key(Role.VIEWER, "other"))

    assert {dict(labels)["project"] for _, labels in found} == {"other"}
    assert {name for name, _ in found} == {
        "trainyard_jobs",
        "trainyard_queue_wait_seconds_bucket",
        "trainyard_queue_wait_seconds_count",
        "trainyard_queue_wait_seconds_sum",
        "trainyard_steps_per_second",
    }


def test_a_super_admin_who_acts_within_a_project_reads_its_figures(api: Api) -> None:
    with api.db.write() as session:
        make_job(session)
        make_job(session, project="other")

    said = api.call("GET", "/metrics", headers={"X-Project": "other"}).get_data(as_text=True)

    assert {dict(labels)["project"] for _, labels in by_labels(parse(said))} == {"other"}


def test_requests_are_counted_by_route_method_and_status(sqlite_api: Api) -> None:
    for name in ("a", "b"):
        sqlite_api.call("GET", f"/v1/nodes/{name}")
    sqlite_api.call("GET", "/v1/queues", key="wrong")
    sqlite_api.call("GET", "/nowhere/secret-in-a-path")
    sqlite_api.call("BREW", "/v1/queues")

    found = figures(sqlite_api)

    missing = {"method": "GET", "route": "/v1/nodes/<name>"}
    assert of(found, "http_requests_total", **missing, status="404") == 2
    assert of(found, "http_request_duration_seconds_count", **missing) == 2
    assert of(found, "http_request_duration_seconds_bucket", **missing, le="+Inf") == 2
    assert of(found, "http_requests_total", method="GET", route="/v1/queues", status="401") == 1
    assert of(found, "http_requests_total", method="GET", route="none", status="404") == 1
    assert of(found, "http_requests_total", method="OTHER", route="none", status="405") == 1
    assert not any("secret-in-a-path" in value for _, labels in found for _, value in labels)


def test_the_format_is_the_one_that_prometheus_asks_for(sqlite_api: Api) -> None:
    plain = sqlite_api.call("GET", "/metrics")
    opened = sqlite_api.call("GET", "/metrics", headers={"Accept": OPENMETRICS})

    assert (plain.content_type or "").startswith("text/plain; version=")
    assert (opened.content_type or "").startswith("application/openmetrics-text; version=1.0.0")
    names = {family.name for family in parse_openmetrics(opened.get_data(as_text=True))}
    assert {"trainyard_jobs", "trainyard_http_requests", "trainyard_queue_wait_seconds"} <= names
    assert {family.documentation for family in parse(plain.get_data(as_text=True))} - {""}


def test_figures_need_a_key(sqlite_api: Api) -> None:
    sqlite_api.problem(sqlite_api.client.get("/metrics"), 401)
    sqlite_api.problem(sqlite_api.call("GET", "/metrics?format=json"), 422)


def test_the_page_lists_exactly_the_figures_there_are(sqlite_api: Api) -> None:
    page = PAGE.read_text()
    table = set(re.findall(r"trainyard_\w+", "".join(line for line in page.splitlines() if line.startswith("|"))))
    sqlite_api.call("GET", "/v1/queues")

    said = sqlite_api.call("GET", "/metrics").get_data(as_text=True)

    served = set(re.findall(r"^# TYPE (\w+)", said, re.MULTILINE))
    assert {name for name in served if not name.endswith("_created")} == table
    samples = served | {f"{name}_bucket" for name in served}
    assert set(re.findall(r"trainyard_\w+", page + ALERTS.read_text())) <= samples


def test_the_page_explains_each_alert_rule() -> None:
    (group,) = yaml.safe_load(ALERTS.read_text())["groups"]
    names = [rule["alert"] for rule in group["rules"]]

    assert re.findall(r"^\| `(Trainyard\w+)`", PAGE.read_text(), re.MULTILINE) == names
    assert all(set(rule) <= {"alert", "expr", "for"} for rule in group["rules"])
    assert len(names) >= 11
