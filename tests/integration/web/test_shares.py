"""The pages of shares: who uses how much of what is theirs, and the quotas."""

import pytest

from app.domain.lifecycle.states import JobState
from app.models import AuditEntry, Project, ProjectUsage
from app.models.base import utc_now
from tests.builders.factories import make_attempt, make_job, make_node, make_project
from tests.integration.web.conftest import Browser
from tests.systems.apps import Api


@pytest.fixture
def shared(web_api: Api) -> Api:
    """`vision` uses 3 GPUs of 2 that it deserves; `default` none."""
    with web_api.db.write() as session:
        make_project(session, "vision").quota = {"gpus": {"deserved": 2}}
        node = make_node(session, "gpu-1", devices=4, device_type="h100")
        make_attempt(
            session, make_job(session, state=JobState.TRAINING, project="vision"), node, device_indices=(0, 1, 2)
        )
        month = f"{utc_now():%Y-%m}"
        session.add(ProjectUsage(project="vision", month=month, gpu_seconds=3600 * 7))
        session.add(ProjectUsage(project="default", month="2020-01", gpu_seconds=3600))
    return web_api


def test_shares_are_used_deserved_and_borrowed(shared: Api, web: Browser) -> None:
    page = web.get("/ui/shares")

    assert "1 default 0 – 0 – 1 0 0" in page.text
    assert "2 vision 3 2 1 – 1 1 0" in page.text
    assert 'aria-label="3 of 4 used, 2 deserved"' in page.html
    assert "vision 7.0 7.0" in page.text
    part = web.get("/ui/shares", headers={"HX-Request": "true"})
    assert "<html" not in part.html
    assert "GPU-hours" not in part.text


def test_gpu_hours_are_downloaded(shared: Api, web: Browser) -> None:
    answer = web.client.get("/ui/shares/gpu-hours.csv")

    assert answer.headers["Content-Disposition"] == "attachment; filename=gpu-hours.csv"
    assert answer.get_data(as_text=True).splitlines()[-1] == "default,2020-01,1.0"


def test_a_project_sees_its_own_shares(shared: Api, viewer: Browser) -> None:
    for path in ("/ui/shares", "/ui/shares/gpu-hours.csv", "/ui/shares/default"):
        assert "vision" not in viewer.get(path).html
    viewer.get("/ui/shares/vision", 404)
    viewer.get("/ui/shares/nothing", 404)


def test_a_super_admin_sets_a_quota_as_a_whole(shared: Api, web: Browser) -> None:
    page = web.get("/ui/shares/vision")
    assert page.fields["gpus_deserved"] == "2"
    assert page.fields["gpus_limit"] == ""

    fields = {
        "gpus_limit": "8",
        "gpus_over_quota_weight": "0.5",
        "max_running_jobs": "0",
        "gpu_hours_per_month": "1000",
    }
    assert web.act("/ui/shares/vision", fields) == "The quota of vision is set."

    with shared.db.read() as session:
        assert session.get_one(Project, "vision").quota == {
            "gpus": {"limit": 8, "over_quota_weight": 0.5},
            "max_running_jobs": 0,
            "gpu_hours_per_month": 1000.0,
        }
        entry = session.query(AuditEntry).where(AuditEntry.action == "project.patch").one()
        assert entry.target == "vision"
    page = web.get("/ui/shares/vision")
    assert (page.fields["gpus_deserved"], page.fields["gpus_limit"], page.fields["gpu_hours_per_month"]) == (
        "",
        "8",
        "1000",
    )


@pytest.mark.parametrize("value", ["-1", "two", "1.5", "1e99"])
def test_odd_limits_are_refused_at_their_field(shared: Api, web: Browser, value: str) -> None:
    answer = web.post("/ui/shares/vision", {"gpus_limit": value})

    assert answer.status_code == 422
    assert "gpus_limit" in answer.get_data(as_text=True)


def test_others_see_a_quota_but_do_not_set_it(shared: Api, member: Browser) -> None:
    page = member.get("/ui/shares/default")

    assert "no limit" in page.text
    assert "gpus_limit" not in page.fields
    assert member.post("/ui/shares/default", {"gpus_limit": "8"}).status_code == 403


def test_a_bar_is_all_devices_and_nothing_is_borrowed_where_nobody_deserves_any(shared: Api, web: Browser) -> None:
    with shared.db.write() as session:
        session.get_one(Project, "vision").quota = {}

    bars = web.get("/ui/shares").html

    assert 'class="used" width="75.0"' in bars
    assert 'class="borrowed" x="75.0" width="0.0"' in bars


def test_small_use_is_not_shown_as_none(shared: Api, web: Browser) -> None:
    with shared.db.write() as session:
        row = session.get_one(ProjectUsage, ("vision", f"{utc_now():%Y-%m}"))
        row.gpu_seconds = 324

    text = web.get("/ui/shares/vision").text

    assert "GPU-hours this month 0.09" in text
