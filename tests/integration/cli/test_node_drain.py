"""`trainyard up` stops: its nodes get no new jobs, those that run are saved, and then all is as it was."""

from pathlib import Path

import pytest

from app.cli.local.node_drain import NodesDrain
from app.database.engine import Database
from app.domain.lifecycle.states import JobState
from app.models import Lease, Node
from app.models.base import utc_now
from tests.builders.factories import make_attempt, make_job, make_node

pytestmark = pytest.mark.both_databases


@pytest.fixture
def known(database: Database) -> Database:
    with database.write() as session:
        for name, state in (("a", "ready"), ("b", "drained"), ("c", "ready"), ("other", "ready")):
            make_node(session, name, state=state)
    return database


def states(db: Database) -> dict[str, str]:
    with db.read() as session:
        return {node.name: node.state for node in session.query(Node)}


def test_all_its_nodes_are_drained_and_put_back_as_they_were(known: Database, tmp_path: Path) -> None:
    before = states(known)
    drain = NodesDrain(known, ["a", "b", "c"], tmp_path)

    assert drain.begin() == 0
    assert states(known) == {"a": "draining", "b": "draining", "c": "draining", "other": "ready"}
    drain.undo()

    assert states(known) == {**before, "b": "draining"}, "an administrator's drain stays one"


def test_a_node_whose_worker_was_stopped_is_lost_until_one_registers(known: Database, tmp_path: Path) -> None:
    drain = NodesDrain(known, ["a", "b", "c"], tmp_path)
    drain.begin()

    drain.undo(stopped=True)

    assert states(known) == {"a": "lost", "b": "draining", "c": "lost", "other": "ready"}


def test_it_is_busy_until_the_last_job_on_any_of_them_has_ended(known: Database, tmp_path: Path) -> None:
    with known.write() as session:
        for name in ("a", "c", "other"):
            make_attempt(session, make_job(session, state=JobState.TRAINING), session.get_one(Node, name))
    drain = NodesDrain(known, ["a", "b", "c"], tmp_path)

    assert (drain.begin(), drain.is_busy()) == (2, True)
    with known.write() as session:
        for lease in session.query(Lease).filter(Lease.node != "other"):
            lease.released_at = utc_now()

    assert not drain.is_busy()
