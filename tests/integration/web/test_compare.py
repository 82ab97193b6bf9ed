"""Comparison of jobs: what differs, metrics, means of groups, and the curves as data."""

import math
from datetime import UTC, datetime
from urllib.parse import urlencode

from app.models import Job, Metric
from app.security.permissions import Role
from tests.builders.factories import make_document
from tests.integration.web.conftest import Browser

AT = datetime(2026, 1, 1, tzinfo=UTC)


def submitted(web: Browser, name: str, loss: float, **labels: str) -> str:
    """A job with a curve that ends at this loss."""
    job_id = web.api.submit(name=name, labels=labels)
    with web.api.db.write() as session:
        for step, value in ((1, loss + 1), (2, loss)):
            row = {"name": "loss", "step": step, "at": AT, "attempt": 1, "seq": step, "special": None}
            session.add(Metric(job_id=job_id, value=value, **row))
        session.get_one(Job, job_id).latest_metrics = {"loss": loss}
    return job_id


def url(*jobs: str, page: str = "compare", **more: str) -> str:
    return f"/ui/{page}?{urlencode([*(('job', each) for each in jobs), *more.items()])}"


def test_only_fields_that_differ_are_shown(web: Browser) -> None:
    jobs = [submitted(web, "one", 0.5, seed="1"), submitted(web, "two", 0.25, seed="2")]

    page = web.get(url(*jobs))

    assert "labels. seed 1 2" in page.text
    assert "resource_config" not in page.text


def test_the_best_metric_is_marked_and_differences_are_to_the_first(web: Browser) -> None:
    jobs = [submitted(web, "one", 0.5), submitted(web, "two", 0.25)]

    assert "loss 0.5 ★ 0.25 (−0.25)" in web.get(url(*jobs)).text


def test_best_values_are_of_all_steps(web: Browser) -> None:
    one, two = submitted(web, "one", 0.5), submitted(web, "two", 0.75)
    with web.api.db.write() as session:
        row = {"name": "loss", "step": 0, "at": AT, "attempt": 1, "seq": 3, "special": None}
        session.add(Metric(job_id=two, value=0.125, **row))

    assert "loss 0.5 ★ 0.125 (−0.375)" in web.get(url(one, two, values="best")).text


def test_groups_have_their_mean_and_range(web: Browser) -> None:
    jobs = [submitted(web, f"job {loss}", loss, lr=lr) for loss, lr in ((0.5, "high"), (0.25, "low"), (0.75, "low"))]
    jobs.append(submitted(web, "without", 4.0))

    page = web.get(url(*jobs, group="lr"))

    assert "lr=high · 1 job lr=low · 2 jobs lr=(none) · 1 job" in page.text
    assert "loss 0.5 0.5 (0.25 to 0.75) 4" in page.text


def test_curves_are_columns_per_job_with_gaps_for_what_is_no_number(web: Browser) -> None:
    one, two = submitted(web, "one", 0.5), web.api.submit(name="two")
    with web.api.db.write() as session:
        row = {"name": "loss", "step": 3, "at": AT, "attempt": 1, "seq": 3, "special": "NaN"}
        session.add(Metric(job_id=one, value=None, **row))

    found = web.json(url(one, two, page="compare/curves.json", metric="loss"))

    assert found == {"loss": [{"xs": [1, 2, 3], "ys": [1.5, 0.5, None]}, {"xs": [], "ys": []}]}
    assert not math.isnan(found["loss"][0]["ys"][0])


def test_fewer_than_two_jobs_lead_to_the_list(web: Browser) -> None:
    page = web.get(url(web.api.submit()))

    assert "Select 2 to 20 jobs" in page.text
    assert "/ui/jobs" in page.links


def test_more_than_twenty_jobs_are_refused(web: Browser) -> None:
    assert "2 to 20 jobs" in web.get(url(*(f"job-{i}" for i in range(21))), 400).text


def test_names_and_labels_are_text(web: Browser) -> None:
    jobs = [submitted(web, "one", 0.5, note="<img src=x>"), submitted(web, "two", 0.5, note='"><script>')]

    page = web.get(url(*jobs, group="note"))

    assert "<img src=x" not in page.html
    assert '"><script>' not in page.html


def test_jobs_of_other_projects_are_not_found(web: Browser, viewer: Browser) -> None:
    web.api.make_key(Role.USER, "other")
    foreign = web.api.data(web.api.post("/v1/jobs?project=other", make_document(name="secret")), 201)["job_id"]
    own = web.api.submit()

    assert "secret" not in viewer.get(url(own, foreign), 404).text
    viewer.get(url(own, foreign, page="compare/curves.json", metric="loss"), 404)
