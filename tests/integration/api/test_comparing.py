"""POST /v1/compare: documents, metrics and curves of several jobs, on both databases, and every bad request by name."""

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import func, select

from app.domain.ids import new_id
from app.domain.lifecycle.states import JobState
from app.models import IdempotentReply, Job, JobEvent, Node
from app.security.permissions import Role
from app.services.jobs.comparison import MOST_METRICS
from app.services.telemetry import stored_metrics
from app.services.telemetry.stored_metrics import MetricValue, TelemetryReports
from tests.builders.factories import make_attempt, make_document, make_job, make_node
from tests.systems.apps import Api

START = datetime(2026, 5, 17, 12, tzinfo=UTC)


def trained(
    api: Api, points: Mapping[str, Sequence[float]], *, document: dict[str, Any] | None = None, **columns: Any
) -> str:
    """A running job with these values of its steps 1, 2, …, ten seconds apart."""
    with api.db.write() as session:
        node = session.get(Node, "local") or make_node(session, devices=40, version="1.2.3")
        job = make_job(session, document=document, started_at=START, **columns)
        taken = session.scalar(select(func.count()).select_from(Job)) or 0
        lease = make_attempt(session, job, node, device_indices=(taken,))
    reported = [
        MetricValue(name=name, step=step, at=START + timedelta(seconds=10 * step), value=value)
        for name, values in points.items()
        for step, value in enumerate(values, start=1)
    ]
    stored_metrics.store(api.db, job_id=job.id, attempt=1, fence=lease.fence, reports=TelemetryReports(points=reported))
    return str(job.id)


def end(api: Api, job_id: str, **columns: Any) -> None:
    with api.db.write() as session:
        job = session.get_one(Job, job_id)
        for name, value in {"status": JobState.COMPLETED, **columns}.items():
            setattr(job, name, value)


def compared(api: Api, *job_ids: str, **more: Any) -> Any:
    return api.data(api.post("/v1/compare", {"jobs": list(job_ids), **more}))


def ys(curves: list[list[dict[str, Any]]]) -> list[list[Any]]:
    return [[point["value"] for point in curve] for curve in curves]


@pytest.mark.both_databases
def test_jobs_are_compared_by_document_metrics_and_curves(api: Api) -> None:
    lower = make_document(labels={"run": "2"}, training_config={"hyperparameters": {"learning_rate": "1e-4"}})
    first = trained(api, {"loss": [3.0, 2.0, 2.5], "eval_loss": [2.25]})
    second = trained(api, {"loss": [3.0, 1.0]}, document=lower, labels={"run": "2"}, priority=7)
    end(api, first, report={"model_hash": "f" * 64, "final_metrics": {"loss": 2.5, "test_loss": 4.0}})

    found = compared(api, first, second)

    one, two = found["jobs"]
    assert (one["job_id"], one["status"], one["model_hash"]) == (first, "COMPLETED", "f" * 64)
    assert (two["job_id"], two["status"], two["model_hash"]) == (second, "PREPARING", None)
    assert one["devices"] == {"type": "cpu", "count": 1, "share": 1.0, "node_names": ["local"]}
    assert (one["versions"], one["started_at"]) == ({"local": "1.2.3"}, "2026-05-17T12:00:00.000Z")
    assert found["differences"] == [
        {"field": "labels.run", "values": [None, "2"]},
        {"field": "scheduling_config.priority", "values": [5, 7]},
        {"field": "training_config.hyperparameters.learning_rate", "values": ["1e-3", "1e-4"]},
    ]
    assert found["metrics"] == {
        "loss": {
            "goal": "minimize",
            "final": [2.5, 1.0],
            "final_difference": [0.0, -1.5],
            "best": [2.0, 1.0],
            "best_difference": [0.0, -1.0],
        },
        "eval_loss": {
            "goal": "minimize",
            "final": [2.25, None],
            "final_difference": [0.0, None],
            "best": [2.25, None],
            "best_difference": [0.0, None],
        },
        "test_loss": {
            "goal": "minimize",
            "final": [4.0, None],
            "final_difference": [0.0, None],
            "best": [4.0, None],
            "best_difference": [0.0, None],
        },
    }
    assert next(iter(found["metrics"])) == "loss"
    assert found["curves"] == {
        "loss": [
            [{"x": 1, "value": 3.0}, {"x": 2, "value": 2.0}, {"x": 3, "value": 2.5}],
            [{"x": 1, "value": 3.0}, {"x": 2, "value": 1.0}],
        ],
        "eval_loss": [[{"x": 1, "value": 2.25}], []],
    }
    assert found["left_out"] == []


@pytest.mark.both_databases
def test_axis_is_seconds_since_the_start_in_their_order(api: Api) -> None:
    """Step 1 is repeated after step 2, as after a resume."""
    first, second = trained(api, {"loss": [2.0, 1.0]}), trained(api, {})
    again = MetricValue(name="loss", step=1, at=START + timedelta(seconds=35.5), value=1.5)
    stored_metrics.store(api.db, job_id=first, attempt=1, fence=1, reports=TelemetryReports(points=[again]))

    curves = compared(api, first, second, by="seconds")["curves"]

    assert curves == {"loss": [[{"x": 20.0, "value": 1.0}, {"x": 35.5, "value": 1.5}], []]}


@pytest.mark.both_databases
def test_axis_is_tokens_as_measured_else_the_same_for_every_step(api: Api) -> None:
    measured = trained(api, {"loss": [4.0, 3.0, 2.0], "tokens": [100.0, 150.0]})
    even = trained(api, {"loss": [4.0, 3.0]}, tokens=800, current_step=4)
    without = trained(api, {"loss": [4.0]})

    curves = compared(api, measured, even, without, by="tokens", metrics=["loss"])["curves"]

    assert [[point["x"] for point in curve] for curve in curves["loss"]] == [[100, 150, 150], [200, 400], []]


@pytest.mark.both_databases
def test_tokens_that_are_not_finite_are_no_part_of_the_axis(api: Api) -> None:
    partly = trained(api, {"loss": [4.0, 3.0, 2.0], "tokens": [math.nan, 150.0, math.inf]})
    never = trained(api, {"loss": [4.0, 3.0], "tokens": [math.nan, -math.inf]}, tokens=800, current_step=4)
    huge = trained(api, {"loss": [4.0, 3.0, 2.0]}), [(1, -1.5e308), (3, 1.5e308)]
    points = [MetricValue(name="tokens", step=step, at=START, value=value) for step, value in huge[1]]
    stored_metrics.store(api.db, job_id=huge[0], attempt=1, fence=1, reports=TelemetryReports(points=points))

    curves = compared(api, partly, never, huge[0], by="tokens", metrics=["loss"])["curves"]

    xs = [[point["x"] for point in curve] for curve in curves["loss"]]
    assert xs == [[75, 150, 150], [200, 400], [-1.5e308, 0, 1.5e308]]


@pytest.mark.both_databases
def test_numbers_that_json_lacks_are_texts_and_never_the_best(api: Api) -> None:
    values = [math.nan, 0.5, 0.75, math.inf, -math.inf, *[0.25] * 20, math.nan]
    first, second = trained(api, {"accuracy": values}), trained(api, {"accuracy": [0.5]})

    found = compared(api, first, second, max_points=4)

    assert found["metrics"]["accuracy"] == {
        "goal": "maximize",
        "final": ["NaN", 0.5],
        "final_difference": [None, None],
        "best": [0.75, 0.5],
        "best_difference": [0.0, -0.25],
    }
    assert len(found["curves"]["accuracy"][0]) <= 4
    assert ys(found["curves"]["accuracy"])[0][-1] == "NaN"


@pytest.mark.both_databases
def test_curves_are_thinned_and_keep_their_extremes(api: Api) -> None:
    values = [2.0] * 300
    values[100], values[200] = 0.5, 9.0
    first, second = trained(api, {"loss": values}), trained(api, {"loss": values[:50]})

    found = compared(api, first, second, max_points=20)

    long, short = ys(found["curves"]["loss"])
    assert (len(long) <= 20, min(long), max(long)) == (True, 0.5, 9.0)
    assert len(short) <= 20
    assert found["metrics"]["loss"]["best"] == [0.5, 2.0]


def test_metrics_of_most_jobs_come_first_and_the_rest_is_named(sqlite_api: Api) -> None:
    many = {f"m{number:02}": [1.0] for number in range(MOST_METRICS + 2)}
    first, second = trained(sqlite_api, many), trained(sqlite_api, {"z": [1.0], "m21": [1.0]})

    found = compared(sqlite_api, first, second)
    asked = compared(sqlite_api, first, second, metrics=["z", "unknown"])

    assert list(found["metrics"]) == ["m21", *sorted(many)[: MOST_METRICS - 1]]
    assert found["left_out"] == ["m19", "m20", "z"]
    assert asked["metrics"]["z"]["final"] == [None, 1.0]
    assert asked["metrics"]["unknown"]["final"] == [None, None]
    assert (list(asked["curves"]), asked["left_out"]) == (["z"], [])


def test_jobs_that_have_not_started_are_compared_by_their_documents(sqlite_api: Api) -> None:
    first, second = sqlite_api.submit(), sqlite_api.submit(data_config={"batch_size": 2})

    found = compared(sqlite_api, first, second)

    assert [(job["devices"], job["versions"], job["started_at"]) for job in found["jobs"]] == [(None, {}, None)] * 2
    assert [row["field"] for row in found["differences"]] == ["data_config.batch_size"]
    assert (found["metrics"], found["curves"]) == ({}, {})


def test_secrets_stay_masked(sqlite_api: Api) -> None:
    plain = sqlite_api.submit()
    secrets = [sqlite_api.submit(training_config={"environment": {"HF_TOKEN": text}}) for text in ("hf_one", "hf_two")]

    answer = sqlite_api.post("/v1/compare", {"jobs": [plain, *secrets]})

    assert sqlite_api.data(answer)["differences"] == [
        {"field": "training_config.environment.HF_TOKEN", "values": [None, "***", "***"]}
    ]
    assert "hf_" not in answer.text


def test_a_comparison_changes_nothing_and_its_idempotency_key_stays_free(sqlite_api: Api) -> None:
    job_ids = [sqlite_api.submit(), sqlite_api.submit()]
    viewer = sqlite_api.make_key(Role.VIEWER)

    def stored() -> list[int | None]:
        with sqlite_api.db.read() as session:
            return [session.scalar(select(func.count()).select_from(table)) for table in (JobEvent, IdempotentReply)]

    before = stored()

    answers = [
        sqlite_api.post("/v1/compare", {"jobs": order}, key=viewer, headers={"Idempotency-Key": "k"})
        for order in (job_ids, job_ids[::-1])
    ]

    assert [[job["job_id"] for job in sqlite_api.data(answer)["jobs"]] for answer in answers] == [
        job_ids,
        job_ids[::-1],
    ]
    assert stored() == before


# ---- bad requests

IDS = [new_id("job") for _ in range(21)]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "jobs"),
        ({"jobs": None}, "jobs"),
        ({"jobs": []}, "jobs"),
        ({"jobs": IDS[:1]}, "jobs"),
        ({"jobs": IDS}, "jobs"),
        ({"jobs": IDS[0]}, "jobs"),
        ({"jobs": {"a": IDS[0]}}, "jobs"),
        ({"jobs": [IDS[0], IDS[1], IDS[0]]}, "jobs.2"),
        ({"jobs": [IDS[0], 1]}, "jobs.1"),
        ({"jobs": [IDS[0], None]}, "jobs.1"),
        ({"jobs": [IDS[0], ""]}, "jobs.1"),
        ({"jobs": [IDS[0], "x" * 65]}, "jobs.1"),
    ],
)
def test_bad_lists_of_jobs_are_refused_and_named(sqlite_api: Api, body: dict[str, Any], field: str) -> None:
    problem = sqlite_api.problem(sqlite_api.post("/v1/compare", body), 422)

    assert [detail["field"] for detail in problem["details"]] == [field]


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"metrics": "loss"}, "metrics"),
        ({"metrics": [f"m{n}" for n in range(MOST_METRICS + 1)]}, "metrics"),
        ({"metrics": ["loss", "loss"]}, "metrics.1"),
        ({"metrics": [""]}, "metrics.0"),
        ({"metrics": ["x" * 129]}, "metrics.0"),
        ({"metrics": [1]}, "metrics.0"),
        ({"by": "epochs"}, "by"),
        ({"by": "Step"}, "by"),
        ({"by": 1}, "by"),
        ({"max_points": 3}, "max_points"),
        ({"max_points": 1001}, "max_points"),
        ({"max_points": 10.0}, "max_points"),
        ({"max_points": "200"}, "max_points"),
        ({"max_points": True}, "max_points"),
        ({"job": IDS[0]}, "job"),
    ],
)
def test_bad_options_are_refused_and_named(sqlite_api: Api, more: dict[str, Any], field: str) -> None:
    problem = sqlite_api.problem(sqlite_api.post("/v1/compare", {"jobs": IDS[:2], **more}), 422)

    assert [detail["field"] for detail in problem["details"]] == [field]


def test_jobs_of_other_projects_are_missing_like_unknown_ones(sqlite_api: Api) -> None:
    other = sqlite_api.make_key(Role.ADMIN, "team-b")
    mine, foreign = sqlite_api.submit(key=other), sqlite_api.submit()

    answers = {
        job_id: sqlite_api.problem(sqlite_api.post("/v1/compare", {"jobs": [mine, job_id]}, key=other), 404)
        for job_id in (foreign, IDS[0], "no-id")
    }

    assert answers == {
        job_id: {
            "code": "NOT_FOUND",
            "message": f"no job {job_id}",
            "details": [{"field": "jobs.1", "message": f"no job {job_id}"}],
        }
        for job_id in answers
    }
