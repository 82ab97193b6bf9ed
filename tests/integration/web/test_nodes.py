"""The pages of nodes: who uses which device, and what an administrator does about it."""

from datetime import timedelta

import pytest
from sqlalchemy import update

from app.domain.lifecycle.states import JobState
from app.models import AuditEntry, Job, Node, StuckDevice
from app.models.base import utc_now
from app.services.nodes import device_usage
from app.services.nodes.device_usage import DeviceUse, NodeUse
from tests.builders.factories import make_attempt, make_job, make_node, make_project
from tests.integration.web.conftest import Browser
from tests.systems.apps import Api

XSS = "<img src=x onerror=alert(1)>"


@pytest.fixture
def fleet(web_api: Api) -> Api:
    """`gpu-1`: device 0 used by `vision`, half of 1 by `default`, 2 out of service, 3 free. `gpu-2`: quarantined."""
    with web_api.db.write() as session:
        make_project(session, "vision")
        node = make_node(session, "gpu-1", devices=4, device_type="h100", memory_mb=80_000)
        make_node(session, "gpu-2", devices=1, state="quarantined", quarantine_reason=XSS)
        secret = make_job(session, state=JobState.TRAINING, project="vision", name="secret-run")
        make_attempt(session, secret, node, device_indices=(0,))
        half = make_job(session, state=JobState.TRAINING, name="half-run")
        make_attempt(session, half, node, device_indices=(1,), share=50)
        now = utc_now()
        session.add(StuckDevice(node="gpu-1", device_index=2, job_id="gone", attempt=1, since=now, seen_at=now))
    devices = [DeviceUse(index=0, utilization=88.0, memory_used_mb=20_000)]
    device_usage.record(web_api.db, "gpu-1", NodeUse(at=now, cpu_percent=41.0, ram_used_mb=10, devices=devices))
    return web_api


def actions(api: Api) -> list[tuple[str, str | None]]:
    with api.db.read() as session:
        entries = session.query(AuditEntry).where(AuditEntry.action.startswith("node.")).order_by(AuditEntry.id)
        return [(entry.action, entry.target) for entry in entries]


def state_of(api: Api, name: str) -> str:
    with api.db.read() as session:
        return session.get_one(Node, name).state


def test_a_square_tells_who_uses_a_device(fleet: Api, web: Browser) -> None:
    page = web.get("/ui/nodes")

    assert 'aria-label="1 used by vision; 1 50% used by default; 1 out of service; 1 free"' in page.html
    assert "A default, 1 B vision, 1" in page.text
    assert "h100 4 1 1 1 0 ✕ 1" in page.text
    assert "quarantined 1" in page.text


def test_squares_tell_what_devices_do(fleet: Api, web: Browser) -> None:
    assert 'aria-label="device 0: 88%; device 1: no sample;' in web.get("/ui/nodes?show=utilization").html
    assert 'aria-label="device 0: 25%;' in web.get("/ui/nodes?show=memory").html
    web.get("/ui/nodes?show=heat", 422)


def test_a_project_does_not_see_who_else_uses_devices(fleet: Api, viewer: Browser) -> None:
    for path in ("/ui/nodes", "/ui/nodes/gpu-1", "/ui/nodes?show=utilization"):
        page = viewer.get(path)
        assert "vision" not in page.html
        assert "secret-run" not in page.html
    assert "another project" in page.html or "another project" in viewer.get("/ui/nodes/gpu-1").text
    assert "half-run" in viewer.get("/ui/nodes/gpu-1").text


def test_a_node_has_its_devices_and_its_last_hour(fleet: Api, web: Browser) -> None:
    page = web.get("/ui/nodes/gpu-1")

    assert "secret-run" in page.text
    assert "88 % 25 %" in page.text
    assert "Utilization of device 0 in the last hour: now 88 %, at most 88 %" in page.html
    assert XSS not in web.get("/ui/nodes/gpu-2").html
    assert XSS in web.get("/ui/nodes/gpu-2").text
    web.get("/ui/nodes/gpu-9", 404)


def test_lines_of_a_node_go_back_as_far_as_samples_are_kept(fleet: Api, web: Browser) -> None:
    then = utc_now() - timedelta(hours=5)
    for minutes, percent in ((0, 96.0), (1, 92.0)):
        use = DeviceUse(index=0, utilization=percent, memory_used_mb=1)
        sample = NodeUse(at=then + timedelta(minutes=minutes), cpu_percent=1.0, ram_used_mb=1, devices=[use])
        device_usage.record(fleet.db, "gpu-1", sample)

    assert "at most 88 %" in web.get("/ui/nodes/gpu-1").html
    assert "device 0 in the last 6 hours: now 88 %, at most 96 %" in web.get("/ui/nodes/gpu-1?span=6h").html
    day = web.get("/ui/nodes/gpu-1?span=24h").html
    assert "device 0 in the last 24 hours: now 88 %, at most 96 %" in day
    assert 'hx-get="/ui/nodes/gpu-1?span=24h"' in day
    assert 'data-pace="60"' in day  # many lines, which take long to draw
    assert "data-pace" not in web.get("/ui/nodes/gpu-1").html
    web.get("/ui/nodes/gpu-1?span=2h", 422)


def test_pages_refresh_their_parts_alone(fleet: Api, web: Browser) -> None:
    for path in ("/ui/nodes", "/ui/nodes/gpu-1"):
        part = web.get(path, headers={"HX-Request": "true"})
        assert "<html" not in part.html
        assert "gpu-1" in part.html


def test_an_administrator_drains_and_enables(fleet: Api, web: Browser) -> None:
    assert web.act("/ui/nodes/gpu-1/drain") == "gpu-1 gets no new jobs."
    assert "2 jobs save" in web.act("/ui/nodes/gpu-1/drain", {"requeue": "true"})
    assert state_of(fleet, "gpu-1") == "draining"
    assert "accepts jobs" in web.act("/ui/nodes/gpu-1/enable")
    assert "accepts jobs" in web.act("/ui/nodes/gpu-2/enable")

    assert (state_of(fleet, "gpu-1"), state_of(fleet, "gpu-2")) == ("ready", "ready")
    assert [name for name, _ in actions(fleet)] == ["node.drain", "node.drain", "node.enable", "node.enable"]


def test_devices_are_put_back_and_lost_nodes_removed(fleet: Api, web: Browser) -> None:
    assert web.post("/ui/nodes/gpu-1/put-back").status_code == 409, "the node has just seen the process"
    with fleet.db.write() as session:
        session.execute(update(StuckDevice).values(seen_at=utc_now() - timedelta(hours=1)))
    assert web.act("/ui/nodes/gpu-1/put-back") == "1 device is in service again."
    assert actions(fleet)[-1] == ("node.put_back", "gpu-1")
    assert web.post("/ui/nodes/gpu-2/remove").status_code == 409
    with fleet.db.write() as session:
        session.get_one(Node, "gpu-2").state = "lost"

    assert web.act("/ui/nodes/gpu-2/remove") == "gpu-2 is removed."
    assert actions(fleet)[-1] == ("node.remove", "gpu-2")


def test_labels_of_the_file_stay(fleet: Api, web: Browser) -> None:
    with fleet.db.write() as session:
        session.get_one(Node, "gpu-1").labels = ["rack-7"]

    web.act("/ui/nodes/gpu-1/labels", {"labels": "fast, blue fast"})
    with fleet.db.read() as session:
        assert session.get_one(Node, "gpu-1").all_labels == ["rack-7", "fast", "blue"]
    web.act("/ui/nodes/gpu-1/labels", {"labels": ""})
    with fleet.db.read() as session:
        assert session.get_one(Node, "gpu-1").all_labels == ["rack-7"]
    assert actions(fleet) == [("node.label", "gpu-1")] * 2


def test_a_node_explains_why_a_job_does_not_start(fleet: Api, web: Browser, viewer: Browser) -> None:
    with fleet.db.write() as session:
        waiting = make_job(session, project="vision").id

    page = web.get(f"/ui/nodes/gpu-2?job={waiting}")

    assert "is quarantined" in page.text
    assert waiting in page.html  # offered
    viewer.get(f"/ui/nodes/gpu-2?job={waiting}", 404)
    assert waiting not in viewer.get("/ui/nodes/gpu-2?job=").html


@pytest.mark.parametrize("action", ["drain", "enable", "put-back", "labels", "remove"])
def test_only_a_super_admin_changes_nodes(fleet: Api, member: Browser, action: str) -> None:
    assert member.post(f"/ui/nodes/gpu-1/{action}").status_code == 403
    assert "/drain" not in member.get("/ui/nodes/gpu-1").html
    assert actions(fleet) == []


def test_above_200_nodes_each_node_is_a_square_and_devices_are_shown_by_page(web_api: Api, web: Browser) -> None:
    assert "No node has registered" in web.get("/ui/nodes").text
    with web_api.db.write() as session:
        for number in range(230):
            make_node(session, f"gpu-{number:03}", devices=8, device_type="h100")

        make_node(session, "lost-1", devices=8, device_type="h100", state="lost")
        for number in (7, 8):
            job = make_job(session, state=JobState.TRAINING)
            make_attempt(session, job, session.get_one(Node, f"gpu-{number:03}"), device_indices=tuple(range(6)))
        now = utc_now()
        session.add(StuckDevice(node="gpu-008", device_index=7, job_id="gone", attempt=1, since=now, seen_at=now))
    devices = [DeviceUse(index=index, utilization=use, memory_used_mb=None) for index, use in ((0, 90.0), (1, 50.0))]
    device_usage.record(web_api.db, "gpu-007", NodeUse(at=now, cpu_percent=1.0, ram_used_mb=10, devices=devices))

    page = web.get("/ui/nodes")

    assert "h100 1,848 12 0 1,827 8 ✕ 1" in page.text
    assert "Devices of the nodes of this page" in page.text
    assert 'aria-label="gpu-229: ready; 8 free">8<' in page.html
    assert 'aria-label="gpu-007: ready; 6 used, 2 free">2<' in page.html
    assert 'aria-label="gpu-008: ready; 6 used, 1 free, 1 out of service">1<' in page.html
    assert 'aria-label="lost-1: lost; 8 free">✕<' in page.html
    assert "/ui/nodes/gpu-229" in page.links
    busy = web.get("/ui/nodes?show=utilization").html
    assert 'aria-label="gpu-007: ready; 6 used, 2 free; utilization 70%">70<' in busy
    assert 'aria-label="gpu-229: ready; 8 free; no sample">–<' in busy
    assert page.html.count("<") // 2 < 2000
    following = next(link for link in page.links if "page_token" in link)
    assert "gpu-050" in web.get(following).text


def test_waiting_jobs_are_offered_to_ask_about(fleet: Api, web: Browser) -> None:
    job_id = fleet.submit(name="asks")
    with fleet.db.write() as session:
        session.get_one(Job, job_id).status = JobState.QUEUED

    page = web.get("/ui/nodes/gpu-1")

    assert f"/ui/nodes/gpu-1?job={job_id}#why" in page.links
