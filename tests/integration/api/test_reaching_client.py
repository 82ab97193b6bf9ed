"""The client's calls about sessions and ports, against the real API over real HTTP."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from app.models import Job, Project
from app.models.base import utc_now
from app.services.interactive import recordings
from tests.builders.controlled import SCRIPT
from tests.builders.interactive import make_session, open_job
from tests.systems.apps import Api
from tests.systems.served import Served, serving
from trainyard import records
from trainyard._records import interactive as _interactive_records
from trainyard.client import Conflict, Forbidden, InvalidRequest, NotFound


@pytest.fixture
def served(api: Api) -> Iterator[Served]:
    with serving(api) as served:
        yield served


@pytest.fixture
def job_id(api: Api) -> str:
    config = {"ports": [{"name": "app", "port": 8080}]}
    return open_job(api, training_config=SCRIPT, interactive_config=config)


def assert_is(record: Mapping[str, Any], kind: Any) -> None:
    assert kind.__annotations__.keys() == record.keys()


def test_a_session_is_opened_read_and_ended(served: Served, job_id: str):
    client = served.client()

    made = client.create_session(job_id, kind="exec", command=["ls"], tty=True, rows=5)

    assert_is(made, _interactive_records.OpenedSession)
    assert_is(made["session"], records.InteractiveSession)
    assert (made["session"]["tty"], made["url"].startswith("ws://127.0.0.1:")) == (True, True)
    session_id = made["session"]["session_id"]
    assert client.session(job_id, session_id) == made["session"]
    assert client.end_session(job_id, session_id)["status"] == "ended"
    assert [each["session_id"] for each in client.sessions(job_id)] == [session_id]


def test_a_recording_is_read_in_pieces(served: Served, api: Api, job_id: str):
    with api.db.write() as session:
        recorded = make_session(session, job_id, recorded=True).id
        other = make_session(session, job_id).id
    storage = api.app.extensions["trainyard"].plane.storage
    recordings.write_piece(storage, job_id, recorded, number=0, data=b"x" * 200_000)

    assert b"".join(served.client().recording(job_id, recorded)) == b"x" * 200_000
    with pytest.raises(NotFound):
        next(served.client().recording(job_id, other))


def test_ports_are_listed(served: Served, job_id: str):
    client = served.client()

    (port,) = client.ports(job_id)

    assert_is(port, records.JobPort)
    assert (port["name"], port["url"], port["may_open"]) == ("app", None, True)
    with pytest.raises(InvalidRequest, match="TRAINYARD_GATEWAY_PORTS_URL"):
        client.port_url(job_id, "app", seconds=60)


def test_what_is_kept_is_released(served: Served, api: Api, job_id: str):
    with pytest.raises(Conflict):
        served.client().release(job_id)
    with api.db.write() as session:
        session.get_one(Job, job_id).kept_until = utc_now()

    assert served.client().release(job_id).data["kept_until"] is not None


def test_a_project_is_switched(served: Served, api: Api, job_id: str):
    assert served.client().projects.change("default", sessions="off")["sessions"] == "off"

    with api.db.read() as session:
        assert session.get_one(Project, "default").sessions == "off"
    with pytest.raises(Forbidden):
        served.client().create_session(job_id, kind="shell")
