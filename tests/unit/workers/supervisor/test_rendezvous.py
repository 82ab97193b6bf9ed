"""Where ranks of several nodes meet."""

import socket
from types import SimpleNamespace
from typing import cast

import pytest

from app.database.engine import Database
from app.services.attempts.rendezvous import RendezvousAddress
from app.services.attempts.work_orders import WorkOrder
from config.settings import load_settings
from tests.builders.run_specs import make_run_spec
from tests.systems.servers import free_port as some_port
from workers.attempt_failed import AttemptFailed
from workers.prepare.prepare import PreparedAttempt
from workers.supervisor.rendezvous import meeting as rendezvous
from workers.supervisor.rendezvous import peers


def settings(**variables: str):
    return load_settings({"TRAINYARD_DATA_DIR": "/srv/trainyard", **variables})


@pytest.mark.parametrize(
    ("variables", "address"),
    [
        ({"TRAINYARD_NODE_ADDRESS": "10.1.2.3"}, "10.1.2.3"),
        ({"TRAINYARD_BROKER_URL": "redis://127.0.0.1:6379/0"}, "127.0.0.1"),
        ({"TRAINYARD_BROKER_URL": "redis+socket:///run/redis.sock"}, "127.0.0.1"),
    ],
)
def test_a_node_is_reached_where_it_was_set_or_where_it_reaches_the_broker(variables, address):
    assert rendezvous.own_address(settings(**variables)) == address


def test_an_unknown_own_address_names_the_setting():
    with pytest.raises(AttemptFailed, match="TRAINYARD_NODE_ADDRESS") as failed:
        rendezvous.own_address(settings(TRAINYARD_BROKER_URL="redis://no-such-host.invalid:6379/0"))

    assert failed.value.error_type == "NETWORK_ERROR"


def test_a_port_is_free_and_one_that_is_taken_is_passed_over(monkeypatch):
    taken, free = some_port(), some_port()
    drawn = iter([taken, free])
    monkeypatch.setattr("workers.supervisor.rendezvous.meeting.random.randrange", lambda *_: next(drawn))
    with socket.create_server(("127.0.0.1", taken)):
        assert rendezvous.free_port("127.0.0.1") == free


def test_an_address_of_another_machine_is_refused():
    with pytest.raises(AttemptFailed, match="no port of"):
        rendezvous.free_port("192.0.2.1")


def test_the_interface_of_an_address_is_known():
    assert rendezvous.interface_of("127.0.0.1") == "lo"
    assert rendezvous.interface_of("192.0.2.1") == ""


def test_an_attempt_on_one_node_has_all_ranks_here():
    spec = make_run_spec(world_size=3)

    assert (spec.local_ranks, spec.first_rank, spec.nodes) == (3, 0, 1)
    assert "gang" not in spec.to_document()


def test_rules_know_all_addresses_of_other_machines_but_those_that_this_one_has_too() -> None:
    bridge = "172.17.0.1"
    machines = {
        "0": {"network": "a", "addresses": ["10.0.0.1", "10.1.0.1", bridge], "uid": 7000, "guards": True},
        "1": {"network": "b", "addresses": ["10.0.0.2", bridge], "uid": 7003, "guards": True},
    }
    place = RendezvousAddress(address="10.0.0.1", port=21_000, checkpoint_id=None)
    second = cast(WorkOrder, SimpleNamespace(part=1))

    guard = peers._guard(second, {"machines": machines}, place)

    assert guard.elsewhere == {("10.0.0.1", 21_000), ("10.1.0.1", 21_000)}
    assert guard.uids == {7003}
    assert not guard.ports


def test_name_of_a_node_is_resolved_there_unless_it_is_the_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"far": "10.0.0.1", "own": "127.0.1.1"}
    monkeypatch.setattr(socket, "gethostbyname", lambda name: found.get(name, name))

    assert [rendezvous._number_of(each) for each in ("far", "own", "fd00::1", "10.0.0.2")] == [
        "10.0.0.1",
        "own",
        "fd00::1",
        "10.0.0.2",
    ]

    def fails(name: str) -> str:
        raise OSError(name)

    monkeypatch.setattr(socket, "gethostbyname", fails)
    with pytest.raises(AttemptFailed, match="TRAINYARD_NODE_ADDRESS of this node is away, which leads nowhere"):
        rendezvous._number_of("away")


def test_job_is_told_where_its_ports_are_not_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    warned: list[str] = []
    user = SimpleNamespace(uid=7000)
    plan = SimpleNamespace(confinement=SimpleNamespace(user=user, must_be_guarded=False))
    monkeypatch.setattr("app.services.attempts.rendezvous.read", lambda *_: {})
    work = cast(WorkOrder, SimpleNamespace(part=0, node="n1", node_names=("n1", "n2")))
    place = RendezvousAddress(address="10.0.0.1", port=21_000, checkpoint_id=None)
    prepared, database = cast(PreparedAttempt, SimpleNamespace(plan=plan)), cast(Database, None)

    assert peers.guard(database, work, prepared, settings(), warned.append, place)

    (told,) = warned
    assert "other processes on node n1 may reach the ports" in told
    assert "earlier version" in told
