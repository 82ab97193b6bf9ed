"""The mirror on both databases, with time passed in: what Celery's users are shown of the jobs, and when."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from celery import states
from sqlalchemy.exc import OperationalError

from app.database.engine import Database, make_engine
from app.domain.lifecycle.states import TERMINAL, JobState
from app.models import Job
from app.services.jobs import result_mirror
from app.services.lifecycle import transitions
from tasks.background.result_mirror import ResultMirror, result_of
from tests.builders.factories import make_attempt, make_job, make_node

pytestmark = pytest.mark.both_databases


def held_job(db: Database) -> str:
    with db.write() as session:
        job = make_job(session)
        make_attempt(session, job, make_node(session, "box"))
        return job.id


class FakeCelery:
    """The parts of a Celery application that the mirror uses, with everything sent kept in lists."""

    class Runtime:
        def __init__(self, database: Database) -> None:
            self.database = database

    class Backend:
        expires = 60

        def __init__(self) -> None:
            self.keys: dict[str, str] = {}
            self.stored: list[tuple[str, str]] = []
            self.gathered: list[tuple[str, str]] = []
            self.client = self
            self.broken = False

        def get_key_for_task(self, job_id: str) -> str:
            return job_id

        def encode(self, result: dict[str, Any]) -> dict[str, Any]:
            return result

        @contextmanager
        def pipeline(self, *, transaction: bool) -> Iterator["FakeCelery.Backend"]:
            assert not transaction
            yield self
            self.gathered = []

        def keep(self, key: str, result: dict[str, Any]) -> None:
            assert key == result["task_id"]
            self.gathered.append((key, result["status"]))

        def publish(self, key: str, result: dict[str, Any]) -> None:
            assert self.gathered[-1] == (key, result["status"])

        def execute(self) -> None:
            if self.broken:
                raise ConnectionError("gone")
            self.stored += self.gathered

        def set(self, key: str, value: Any, *, ex: int = 0) -> None:
            if ex:
                self.keep(key, value)
            else:
                self.keys[key] = value

        def exists(self, key: str) -> int:
            if self.broken:
                raise ConnectionError("gone")
            return int(key in self.keys)

    class Sender:
        def __init__(self) -> None:
            self.hostname, self.connection = "", self
            self.gathered: list[tuple[str, str, dict[str, Any]]] = []
            self.sent: list[tuple[str, str, dict[str, Any]]] = []

        def send(self, kind: str, **fields: Any) -> None:
            self.gathered.append((kind, self.hostname, fields))

        def flush(self) -> None:
            self.sent, self.gathered = [*self.sent, *self.gathered], []

        def close(self) -> None: ...

        def release(self) -> None: ...

    def __init__(self, database: Database) -> None:
        self.runtime = self.Runtime(database)
        self.backend = self.Backend()
        self.sender = self.Sender()
        self.events = self

    def connection_for_write(self) -> None: ...

    def Dispatcher(self, _connection: None, **_options: Any) -> "FakeCelery.Sender":  # noqa: N802
        return self.sender

    def kinds(self) -> list[str]:
        return [kind for kind, _, _ in self.sender.sent]


@pytest.fixture
def celery(database: Database) -> FakeCelery:
    return FakeCelery(database)


def test_change_is_shown_once_in_both_places(database: Database, celery: FakeCelery) -> None:
    with database.write() as session:
        job_id = make_job(session, name="first").id
    mirror = ResultMirror(celery)

    mirror.show_changes(0.0)
    mirror.show_changes(1.0)

    assert celery.backend.stored == [(job_id, "QUEUED")]
    assert celery.kinds() == ["task-received", "task-queued"]
    _, hostname, fields = celery.sender.sent[-1]
    assert hostname == "coordinator@queue"
    assert (fields["uuid"], fields["name"]) == (job_id, "SFT:first")


def test_start_of_each_attempt_is_sent_under_its_node(database: Database, celery: FakeCelery) -> None:
    job_id, mirror = held_job(database), ResultMirror(celery)

    mirror.show_changes(0.0)
    mirror.show_changes(29.0)
    mirror.show_changes(31.0)

    assert celery.kinds() == ["task-received", "task-started", "task-preparing", "task-preparing"]
    assert celery.sender.sent[-1][1] == "node@box"
    with database.write() as session:
        job = transitions.load_for_change(session, job_id)
        transitions.transition(
            session, job, JobState.FAILED, actor="test", error_type="TRAINER_ERROR", error_message="x"
        )
    mirror.show_changes(32.0)
    assert celery.kinds()[-1] == "task-failed"
    assert celery.sender.sent[-1][2]["exception"] == "TRAINER_ERROR: x"


def test_progress_is_shown_every_two_seconds_when_it_moved(database: Database, celery: FakeCelery) -> None:
    job_id, mirror = held_job(database), ResultMirror(celery)
    mirror.show_changes(10.0)
    mirror.show_changes(13.0)
    assert len(celery.backend.stored) == 1

    with database.write() as session:
        session.get_one(Job, job_id).current_step = 7
    mirror.show_changes(14.0)
    assert len(celery.backend.stored) == 1

    mirror.show_changes(15.5)
    assert len(celery.backend.stored) == 2


def test_what_could_not_be_shown_stays_due(database: Database, celery: FakeCelery) -> None:
    with database.write() as session:
        job_id = make_job(session).id
    mirror = ResultMirror(celery)
    celery.backend.broken = True

    with pytest.raises(ConnectionError):
        mirror.show_changes(0.0)
    celery.backend.broken = False
    mirror.show_changes(1.0)

    assert celery.backend.stored == [(job_id, "QUEUED")]


def test_backend_that_lost_everything_is_sent_everything_again(database: Database, celery: FakeCelery) -> None:
    with database.write() as session:
        job_id = make_job(session).id
    mirror = ResultMirror(celery)
    mirror.show_changes(0.0)

    celery.backend.keys.clear()
    mirror.show_changes(6.0)

    assert celery.backend.stored == [(job_id, "QUEUED")] * 2


def test_reset_that_failed_is_tried_again(database: Database, celery: FakeCelery, tmp_path: Path) -> None:
    with database.write() as session:
        job_id = make_job(session).id
    mirror = ResultMirror(celery)
    mirror.show_changes(0.0)
    celery.backend.keys.clear()
    celery.runtime.database = Database().bind(make_engine(f"sqlite:///{tmp_path}/away/database.db"))

    with pytest.raises(OperationalError):
        ResultMirror(celery).notice_loss(6.0)
    mirror.show_changes(12.0)

    assert celery.backend.stored == [(job_id, "QUEUED")] * 2


def test_change_during_mirroring_stays_due(database: Database) -> None:
    with database.write() as session:
        job_id = make_job(session).id
    (image,) = result_mirror.changed(database)
    with database.write() as session:
        job = transitions.load_for_change(session, job_id)
        transitions.transition(session, job, JobState.PAUSED, actor="test")

    result_mirror.mark_mirrored(database, [image])

    assert [due.state for due in result_mirror.changed(database)] == ["PAUSED"]


@pytest.mark.parametrize("state", JobState)
def test_a_job_is_ready_for_celery_just_when_it_has_ended(database: Database, state: JobState) -> None:
    with database.write() as session:
        make_job(session, state=state)

    (image,) = result_mirror.changed(database)

    assert (result_of(image)["status"] in states.READY_STATES) is (state in TERMINAL)


def test_completed_job_is_shown_to_flower_as_a_success_with_its_report(database: Database, celery: FakeCelery) -> None:
    with database.write() as session:
        job = make_job(session, report={"model_hash": "abc"}, elapsed_seconds=7.5)
        make_attempt(session, job, make_node(session, "box"))
        job.status = JobState.COMPLETED
        make_job(session, state=JobState.COMPLETED, report={"model_hash": "def"})

    ResultMirror(celery).show_changes(0.0)

    ended = {fields["uuid"]: fields for kind, _, fields in celery.sender.sent if kind == "task-succeeded"}
    mine = ended.pop(job.id)
    assert mine["runtime"] == 7.5
    assert "'model_hash': 'abc'" in mine["result"]
    assert "'attempts': 1" in mine["result"]
    (other,) = ended.values()
    assert "'model_hash': 'def'" in other["result"]
    assert "'attempts': 0" in other["result"]
