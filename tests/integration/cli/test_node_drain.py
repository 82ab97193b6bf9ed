"""`trainyard up` stops: its nodes get no new jobs, those that run are saved, and then all is as it was."""

from pathlib import Path

import pytest

from app.cli.local.node_drain import NodesDrain
from app.cli.local.simulated_nodes import SimulatedNode, write_node_configs
from app.database.engine import Database
from app.domain.lifecycle.states import JobState
from app.models import Lease, Node, Reservation
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


@pytest.fixture
def simulated(known: Database, tmp_path: Path) -> Database:
    """Simulated nodes of an earlier start: one free, one that an attempt still holds, and one of this start."""
    write_node_configs([SimulatedNode(name, "h100", 2) for name in ("h100-1", "h100-2", "a100-1")], tmp_path)
    with known.write() as session:
        for name in ("h100-1", "h100-2", "a100-1"):
            node = make_node(session, name, device_type="h100", simulated=True)
            if name == "h100-2":
                make_attempt(session, make_job(session, state=JobState.TRAINING), node)
    return known


def test_a_start_removes_the_simulated_nodes_of_earlier_ones(simulated: Database, tmp_path: Path) -> None:
    drain = NodesDrain(simulated, ["a100-1"], tmp_path)

    assert not drain.forget_simulated()
    assert {name: state for name, state in states(simulated).items() if "100" in name} == {
        "a100-1": "ready",
        "h100-2": "lost",
    }
    with simulated.write() as session:
        session.query(Lease).filter(Lease.node == "h100-2").one().released_at = utc_now()
        session.query(Reservation).filter(Reservation.node == "h100-2").delete()

    assert drain.forget_simulated()
    assert "h100-2" not in states(simulated)
    assert set(states(simulated)) == {"a", "b", "c", "other", "a100-1"}


def test_a_start_removes_its_own_simulated_nodes_when_it_ends(simulated: Database, tmp_path: Path) -> None:
    drain = NodesDrain(simulated, ["a100-1", "h100-1", "h100-2"], tmp_path)
    assert drain.forget_simulated()
    drain.begin()
    drain.undo(stopped=True)

    assert not drain.forget_simulated(ended=True)

    assert {name: state for name, state in states(simulated).items() if "100" in name} == {"h100-2": "lost"}


def test_a_simulated_node_that_an_administrator_drained_or_labelled_outlives_the_end(
    simulated: Database, tmp_path: Path
) -> None:
    with simulated.write() as session:
        session.get_one(Node, "h100-1").state = "drained"
        session.get_one(Node, "a100-1").admin_labels = ["fast"]
    drain = NodesDrain(simulated, ["a100-1", "h100-1"], tmp_path)
    drain.begin()
    drain.undo(stopped=True)

    drain.forget_simulated(ended=True)

    assert states(simulated).keys() >= {"a100-1", "h100-1"}
