"""The curves of a job: the page, its data for drawing, and the CSV file."""

import math
from datetime import UTC, datetime, timedelta

from app.models import Attempt, Job
from app.security.permissions import Role
from app.services.telemetry import stored_metrics
from app.services.telemetry.stored_metrics import MetricValue, TelemetryReports
from tests.builders.factories import make_attempt, make_checkpoint, make_node
from tests.integration.web.conftest import Browser
from trainyard.protocol.messages import Progress

NOW = datetime(2026, 5, 17, 12, tzinfo=UTC)
CANARY = "<img src=x onerror=alert(1)>"


def trained(web: Browser, names: tuple[str, ...] = ("loss",), steps: int = 50, done: Progress | None = None) -> str:
    """A job that has reported `steps` points of each metric, one a second; every tenth is no number."""
    job_id = web.api.submit()
    with web.api.db.write() as session:
        job = session.get_one(Job, job_id)
        fence = make_attempt(session, job, make_node(session)).fence
        session.get_one(Attempt, (job_id, 1)).started_at = NOW
        make_checkpoint(session, job, step=20, is_best=True)
    points = [
        MetricValue(name=name, step=n, at=NOW + timedelta(seconds=n), value=math.nan if n % 10 == 5 else n / 2)
        for name in names
        for n in range(steps)
    ]
    stored_metrics.store(
        web.api.db, job_id=job_id, attempt=1, fence=fence, reports=TelemetryReports(points=points, progress=done)
    )
    return job_id


def test_page_has_a_panel_for_each_metric_in_its_group(web: Browser) -> None:
    job_id = trained(web, ("loss", "eval_loss", "gpu_utilization", CANARY, "epoch"))

    page = web.get(f"/ui/jobs/{job_id}/curves?x=time&smooth=0.6&log=1&from_step=2&to_step=9")

    assert "Training" in page.text
    assert page.html.index('data-group="train"') < page.html.index('data-metric="loss"')
    assert page.html.index('data-group="eval"') < page.html.index('data-metric="eval_loss"')
    assert CANARY in page.text  # as text
    assert CANARY not in page.html
    assert 'data-metric="epoch"' not in page.html  # an axis


def test_a_job_without_metrics_says_so(web: Browser) -> None:
    page = web.get(f"/ui/jobs/{web.api.submit()}/curves")

    assert "No metrics yet." in page.text
    assert 'id="no-curves" class="empty">' in page.html


def test_data_are_columns_of_the_named_curves_with_axes_and_marks(web: Browser) -> None:
    done = Progress(step=49, total_steps=100, epoch=2.0, total_epochs=4.0, tokens=4900)
    job_id = trained(web, ("loss", "odd, name"), done=done)

    data = web.json(f"/ui/jobs/{job_id}/curves.json?names=odd,%20name&from_step=4&to_step=6")

    assert data["groups"] == {"train": ["loss", "odd, name"]}
    at = NOW.timestamp()
    expected = {"steps": [4, 5, 6], "at": [at + 4, at + 5, at + 6], "values": [2.0, None, 3.0]}
    assert data["series"] == {"odd, name": {**expected, "lost": [[5, "nan"]], "lost_count": 1}}
    assert [(each["step"], each["best"]) for each in data["checkpoints"]] == [(20, True)]
    assert data["attempts"] == [{"number": 1, "step": 0, "at": at}]
    assert (data["epochs"], data["tokens"]) == ([[0, 0.0], [49, 2.0]], [[0, 0.0], [49, 4900.0]])
    assert data["ended"] is False


def test_epochs_are_those_that_were_measured(web: Browser) -> None:
    job_id = trained(web, ("loss", "epoch"), steps=3)

    assert web.json(f"/ui/jobs/{job_id}/curves.json")["epochs"] == [[0, 0.0], [1, 0.5], [2, 1.0]]


def test_axes_have_no_values_that_are_not_finite(web: Browser) -> None:
    job_id = trained(web, ("loss", "epoch", "tokens"), steps=7)  # of step 5 they are no number

    data = web.json(f"/ui/jobs/{job_id}/curves.json")

    assert data["epochs"] == data["tokens"] == [[n, n / 2] for n in (0, 1, 2, 3, 4, 6)]


def test_an_epoch_that_is_reported_as_no_number_makes_no_axis(web: Browser) -> None:
    job_id = trained(web, steps=3, done=Progress(step=5, epoch=math.inf, tokens=500))

    data = web.json(f"/ui/jobs/{job_id}/curves.json")

    assert (data["epochs"], data["tokens"]) == ([], [[0, 0.0], [5, 500.0]])


def test_no_more_points_are_sent_than_are_drawn(web: Browser) -> None:
    job_id = trained(web, steps=3000)

    whole = web.json(f"/ui/jobs/{job_id}/curves.json?names=loss")["series"]["loss"]
    part = web.json(f"/ui/jobs/{job_id}/curves.json?names=loss&from_step=1000&to_step=1100")["series"]["loss"]

    assert len(whole["steps"]) <= 1000
    assert (whole["steps"][0], whole["steps"][-1]) == (0, 2999)
    assert part["steps"] == list(range(1000, 1101))
    web.get(f"/ui/jobs/{job_id}/curves.json?max_points=1001", 422)
    web.get(f"/ui/jobs/{job_id}/curves.json?from_step=7&to_step=6", 422)


def test_the_file_has_every_point_of_a_range(web: Browser) -> None:
    job_id = trained(web, ("loss", "a,b"))

    answer = web.client.get(f"/ui/jobs/{job_id}/curves.csv?names=loss&names=a,b&from_step=5&to_step=6")

    assert answer.mimetype == "text/csv"
    assert answer.headers["Content-Disposition"] == f'attachment; filename="{job_id}-metrics.csv"'
    assert answer.get_data(as_text=True).splitlines() == [
        "metric,step,at,value",
        '"a,b",5,2026-05-17T12:00:05.000Z,nan',
        '"a,b",6,2026-05-17T12:00:06.000Z,3.0',
        "loss,5,2026-05-17T12:00:05.000Z,nan",
        "loss,6,2026-05-17T12:00:06.000Z,3.0",
    ]


def test_no_metric_is_a_formula_of_a_spreadsheet(web: Browser) -> None:
    job_id = trained(web, ("=cmd|' /C calc'!A0", "@SUM(1)"))

    answer = web.client.get(
        f"/ui/jobs/{job_id}/curves.csv",
        query_string={"names": ["=cmd|' /C calc'!A0", "@SUM(1)"], "from_step": 6, "to_step": 6},
    )

    assert answer.get_data(as_text=True).splitlines()[1:] == [
        "'=cmd|' /C calc'!A0,6,2026-05-17T12:00:06.000Z,3.0",
        "'@SUM(1),6,2026-05-17T12:00:06.000Z,3.0",
    ]


def test_curves_of_another_project_do_not_exist(web: Browser, member: Browser) -> None:
    job_id = web.api.submit(key=web.api.make_key(Role.USER, "other"))

    for path in ("curves", "curves.json?names=loss", "curves.csv?names=loss"):
        member.get(f"/ui/jobs/{job_id}/{path}", 404)
