"""Where ranks of several nodes meet."""

import socket

import pytest

from config.settings import load_settings
from tests.builders.run_specs import make_run_spec
from tests.systems.servers import free_port as some_port
from workers.attempt_failed import AttemptFailed
from workers.supervisor.control import rendezvous


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
    monkeypatch.setattr("workers.supervisor.control.rendezvous.random.randrange", lambda *_: next(drawn))
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
