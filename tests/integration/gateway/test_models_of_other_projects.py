"""Requests to a model that another project shares: its replicas answer, and the project that asks is counted."""

import time
from typing import Any

import pytest
from sqlalchemy import select

from app.domain.lifecycle.states import JobState
from app.models import ModelPermission, ModelUsage
from app.security.permissions import Caller, Role
from app.services.model_registry import fine_tunes, permissions
from tests.builders.factories import make_project
from tests.builders.inference_requests import make_trained
from tests.systems.gateways import Answer, GatewaySite

ADMIN = Caller(key_id="cli", role=Role.SUPER_ADMIN, project=None)
SECRET = "secret-name"  # of the service


def shared(site: GatewaySite, **service: Any) -> tuple[str, str, str]:
    """(the model, its job, the service that has it); a key of the project `other` may ask."""
    service_id = site.service(SECRET, **service)
    with site.db.write() as session:
        make_project(session, "other")
        job = make_trained(session, state=JobState.COMPLETED)
        name = fine_tunes.planned(session, job, "tiny", "docs").name
        job_id = job.id
    site.set_service(service_id, model_key=job_id)
    permissions.grant(site.db, ADMIN, name, ["other"])
    return name, job_id, service_id


def asked(site: GatewaySite, key: str, model: str, text: str = "say yes", **more: Any) -> Answer:
    body = {"model": model, "messages": [{"role": "user", "content": text}], **more}
    return site.ask("POST", "/v1/chat/completions", body, key=key)


@pytest.mark.long
def test_it_is_answered_and_counted_for_the_project_that_asks(site: GatewaySite) -> None:
    name, job_id, service_id = shared(site)
    engine, place = site.engine()
    site.replica(service_id, place)
    key = site.make_key(Role.INFERENCE, "other")

    answer = asked(site, key, name)
    stream = asked(site, key, name, stream=True)
    refused = [asked(site, key, each).status for each in (SECRET, job_id, f"{SECRET}/{job_id}")]

    assert (answer.status, stream.status) == (200, 200), answer.raw
    assert [body["model"] for body in engine.bodies] == [name, name]
    assert refused == [404, 404, 404]
    assert {row.project for row in _usage(site)} == {"other"}
    assert sum(row.requests for row in _usage(site)) == 2


def test_a_key_without_permission_learns_nothing(site: GatewaySite) -> None:
    name, _, _ = shared(site)
    key = site.make_key(Role.INFERENCE, "third")

    theirs, nowhere = asked(site, key, name), asked(site, key, "ft:tiny:default:docs:00000000")

    assert (theirs.status, nowhere.status) == (404, 404)
    assert theirs.error["message"].replace(name, "ft:tiny:default:docs:00000000") == nowhere.error["message"]


@pytest.mark.long
def test_refusals_name_neither_service_nor_job(site: GatewaySite) -> None:
    name, job_id, service_id = shared(site, limits={"cold_start_seconds": 3})
    key = site.make_key(Role.INFERENCE, "other")

    late = asked(site, key, name)
    stream = asked(site, key, name, stream=True)
    site.set_service(service_id, status="PAUSED")
    time.sleep(1.5)
    paused = asked(site, key, name)

    assert (late.status, paused.status) == (503, 409), (late.raw, paused.raw)
    for answer in (late, stream, paused):
        assert SECRET not in answer.raw.decode()
        assert job_id not in answer.raw.decode()


def test_a_permission_that_was_taken_back_ends_within_a_second(site: GatewaySite) -> None:
    name, _, service_id = shared(site)
    _, place = site.engine()
    site.replica(service_id, place)
    key = site.make_key(Role.INFERENCE, "other")
    assert asked(site, key, name).status == 200

    with site.db.read() as session:
        permission_id = session.scalars(select(ModelPermission.id)).one()
    permissions.revoke(site.db, ADMIN, name, permission_id)
    time.sleep(1.0)

    assert asked(site, key, name).status == 404


def _usage(site: GatewaySite) -> list[ModelUsage]:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        with site.db.read() as session:
            rows = session.scalars(select(ModelUsage).where(ModelUsage.failures == 0)).all()
        if sum(row.requests for row in rows) >= 2:
            return list(rows)
        time.sleep(0.1)
    raise AssertionError("usage was not written")
