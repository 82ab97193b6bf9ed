"""Comparison of jobs: what differs, metrics, means of groups, and the curves as data."""

import math
import re
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

from app.domain.ids import new_id
from app.models import Attempt, Job, Metric
from app.models.base import utc_now
from app.security.permissions import Role
from tests.builders.factories import make_attempt, make_document, make_job, make_node
from tests.integration.web.conftest import Browser

AT = datetime(2026, 1, 1, tzinfo=UTC)
PLOT = 12  # elements that a script adds to a panel whose curves are drawn


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


def test_a_job_is_added_by_its_name_or_id(web: Browser) -> None:
    one, two, three = (submitted(web, name, 0.5) for name in ("one", "two", "three"))
    submitted(web, "twin", 0.5), submitted(web, "twin", 0.5)

    assert web.client.get(url(one, add="two")).location == url(one, two)
    assert web.client.get(url(one, two, add=three, by="seconds")).location == url(one, two, by="seconds", job=three)
    assert web.client.get(url(one, add=f" {two.upper()} ")).location == url(one, two)
    assert "No job is called four" in web.get(url(one, two, add="four")).text
    assert "2 jobs are called twin: give the ID of one" in web.get(url(one, add="twin")).text
    assert f'value="{one}"' in web.get(url(one, add="four")).html


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


def test_a_job_that_is_missing_is_named_and_left_out(web: Browser) -> None:
    jobs = [submitted(web, "one", 0.5), submitted(web, "two", 0.25)]
    gone = new_id("job")

    page = web.get(url(jobs[0], gone, jobs[1], group="lr"))

    assert f"Left out, because there is no such job or you may not see it: {gone}" in page.text
    assert "Compare 2 jobs" in page.text
    assert gone not in str(page.fields)
    assert page.html.count(gone) == 1


def test_device_hours_of_a_running_job_are_counted(web: Browser) -> None:
    ended = submitted(web, "ended", 0.5)
    with web.api.db.write() as session:
        node = make_node(session, "gpus", devices=2, device_type="h100")
        job = make_job(session, gpu_seconds=1800.0)
        make_attempt(session, job, node, device_indices=(0, 1))
        attempt = session.get_one(Attempt, (job.id, 1))
        attempt.started_at = utc_now() - timedelta(hours=3)
        job_id = job.id

    page = web.get(url(job_id, ended))

    assert re.search(r"2 × h100 gpus (\S+ ){2,6}6\.5", page.text)


def test_what_the_jobs_have_in_common_and_losses_are_compared_before_the_rest(web: Browser) -> None:
    jobs = [submitted(web, "many", 0.5), submitted(web, "few", 0.25)]
    many = {f"a_metric_{n:02}": 1.0 for n in range(30)}
    with web.api.db.write() as session:
        session.get_one(Job, jobs[0]).latest_metrics = {"cpu_percent": 9.0, "loss": 1.0, "zeal": 1.0, **many}
        session.get_one(Job, jobs[1]).latest_metrics = {"cpu_percent": 9.0, "loss": 1.0, "zeal": 2.0, "eval_loss": 1.0}

    charts = re.findall(r'data-metric="([^"]+)"', web.get(url(*jobs)).html)

    assert len(charts) == 20
    assert {"loss", "zeal", "eval_loss"} < set(charts)
    assert "cpu_percent" not in charts


def test_jobs_of_other_projects_are_not_found(web: Browser, viewer: Browser) -> None:
    web.api.make_key(Role.USER, "other")
    foreign = web.api.data(web.api.post("/v1/jobs?project=other", make_document(name="secret")), 201)["job_id"]
    own = web.api.submit()

    assert "secret" not in viewer.get(url(own, foreign), 404).text
    viewer.get(url(own, foreign, page="compare/curves.json", metric="loss"), 404)


def test_the_training_loss_comes_first_and_the_system_last(web: Browser) -> None:
    jobs = [submitted(web, "one", 0.5), submitted(web, "two", 0.25)]
    names = ["cpu_percent", "eval_loss", "accuracy", "loss"]
    with web.api.db.write() as session:
        for job_id in jobs:
            session.get_one(Job, job_id).latest_metrics = dict.fromkeys(names, 1.0)

    html = web.get(url(*jobs)).html

    ordered = ["loss", "eval_loss", "accuracy", "cpu_percent"]
    assert re.findall(r'data-metric="(\w+)"', html) == ordered
    assert re.findall(rf'<th scope="row">({"|".join(names)})</th>', html) == ordered


def test_the_page_and_its_curves_are_at_most_eight_requests(web: Browser) -> None:
    html = web.get(url(submitted(web, "one", 0.5), submitted(web, "two", 0.25))).html

    scripts = re.findall(r'<script [^>]*src="[^"]+/([\w.]+\.js)"', html)
    imported = ["live.js", "curves.js"]
    styles = re.findall(r'rel="stylesheet"', html)
    assert scripts == ["app.js", "uPlot.iife.min.js", "compare.js"]
    assert len(["page", "curves.json", *scripts, *imported, *styles]) <= 8


def test_the_largest_comparison_is_no_larger_than_pages_may_be(web: Browser) -> None:
    metrics = {f"metric-{n:02}": float(n) for n in range(20)}
    with web.api.db.write() as session:
        jobs = [
            make_job(session, name=f"job {n}", labels={"seed": str(n % 10), "n": str(n)}, latest_metrics=metrics).id
            for n in range(20)
        ]
    for more in ({}, {"group": "seed"}):
        html = web.get(url(*jobs, **more)).html
        elements = len(re.findall("<[a-z]", html))
        assert elements + 20 * PLOT <= 2000, elements
