"""Ports of an attempt in the machine's network, and processes of other users that connect there, or answer."""

import ctypes
import fcntl
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

import pytest

from app.host import guarded_ports
from app.host.guarded_ports import Guard, lack_of_guards, own_addresses, remove_guard, set_guard, sweep_guards
from app.host.libc import libc
from app.host.process_options import PR_SET_PDEATHSIG, prctl

FIRST = 2_600_000 + os.getpid() % 50_000 * 4  # other tests at the same time have other users
OURS, PEER, STRANGER = range(FIRST, FIRST + 3)
PR_GET_PDEATHSIG = 2
LOOPBACK, ANY_ADDRESS = "127.0.0.1", "0.0.0.0"
CONNECTS_SECONDS, IGNORED_SECONDS = 10.0, 0.3  # the second ones pass in full
OTHER_MACHINE, THIRD_MACHINE = "10.213.77.2", "10.213.77.3"
# Its arguments: a user, what to do, an address, a port, a number of seconds, and the address that it connects from.
PROCESS = """
import os, socket, sys
user, wants, place = int(sys.argv[1]), sys.argv[2], (sys.argv[3], int(sys.argv[4]))
place[0].encode("idna")  # imported while root's files can be read
os.setresgid(user, user, user)
os.setresuid(user, user, user)
if wants == "connect":
    try:
        source = (sys.argv[6], 0) if sys.argv[6] else None
        socket.create_connection(place, float(sys.argv[5]), source_address=source).close()
        print("connected")
    except OSError as error:
        print(type(error).__name__)
elif wants == "crowd":  # more clients at once than its backlog has room for, each at another address of the loopback
    clients = [socket.socket() for _ in range(12)]
    for number, client in enumerate(clients, 1):
        client.setblocking(False)
        client.connect_ex((f"127.0.0.{number}", place[1]))
    sys.stdin.read()
elif wants == "accept":
    with socket.create_server(place, backlog=4) as server:
        print(server.getsockname()[1], flush=True)
        server.settimeout(1.0)
        try:
            server.accept()[0].close()
            print("accepted")
        except TimeoutError:
            print("no client")
else:
    with socket.create_server(place, family=socket.AF_INET6 if ":" in place[0] else socket.AF_INET) as server:
        print(server.getsockname()[1], flush=True)
        sys.stdin.read()
"""


@pytest.fixture(scope="module")
def _guards() -> None:
    """Tried here, not while tests are collected: the trial changes the machine's rules for a moment."""
    if lack := lack_of_guards(f"{FIRST}-{FIRST + 3}"):
        pytest.skip(f"here no ports are guarded: {lack}")


@pytest.fixture(autouse=True)
def _unguarded(_guards: None) -> Iterator[None]:
    yield
    for uid in (OURS, PEER):
        remove_guard(uid)


def test_the_trial_leaves_the_process_to_die_with_its_parent() -> None:
    """A node that outlived a killed `trainyard up` would have lost it: prctl(2) says when."""
    signal_of = ctypes.c_int()
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        lack_of_guards.cache_clear()
        assert not lack_of_guards(f"{FIRST}-{FIRST + 3}")
        libc().prctl(PR_GET_PDEATHSIG, ctypes.byref(signal_of))
    finally:
        prctl(PR_SET_PDEATHSIG, 0)

    assert signal_of.value == signal.SIGKILL


def command(uid: int, wants: str, port: int, address: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", PROCESS, str(uid), wants, address, str(port)]


def connected(
    uid: int,
    port: int,
    address: str = LOOPBACK,
    inside: tuple[str, ...] = (),
    *,
    source: str = "",
    seconds: float = CONNECTS_SECONDS,
) -> str:
    """What a process of that user finds; ``inside``: a command that has the process elsewhere."""
    words = [*inside, *command(uid, "connect", port, address), str(seconds), source]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def is_ignored(*place: Any, **more: Any) -> bool:
    return connected(*place, **more, seconds=IGNORED_SECONDS) == "TimeoutError"


@contextmanager
def listener(uid: int, port: int = 0, address: str = LOOPBACK, inside: tuple[str, ...] = ()) -> Iterator[int]:
    """A process of that user that listens; gives its port."""
    words = [*inside, *command(uid, "listen", port, address)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline())
        process.communicate()


def accepted_from_crowd(listens: int, connects: int, guard: Callable[[int], Guard]) -> str:
    """Whether a listener accepts any of more clients than its backlog has room for: the last get SYN cookies."""
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command(listens, "accept", 0, ANY_ADDRESS), **pipes) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        set_guard(OURS, guard(port))
        with subprocess.Popen(command(connects, "crowd", port, LOOPBACK), **pipes) as clients:
            found: str = server.communicate()[0].strip()
            clients.communicate()
        return found


def of(*uids: int, ports: tuple[int, ...] = ()) -> Guard:
    return Guard(uids=frozenset(uids), ports=frozenset(ports), machines=own_addresses())


@pytest.mark.parametrize("address", [LOOPBACK, "::1", *sorted(own_addresses())[:1]])
def test_only_the_attempt_connects_to_a_port_that_is_known(address: str) -> None:
    with listener(OURS, address=address) as port:
        assert connected(STRANGER, port, address) == "connected"

        set_guard(OURS, of(OURS, ports=(port,)))

        assert connected(OURS, port, address) == "connected"
        assert connected(STRANGER, port, address) == "ConnectionRefusedError"
        assert connected(0, port, address) == "ConnectionRefusedError"  # as jobs are without a user of their own


@pytest.mark.parametrize("address", [LOOPBACK, "::1"])
def test_listener_of_the_attempt_at_any_other_port_answers_to_nobody_else(address: str) -> None:
    set_guard(OURS, of(OURS))

    with listener(OURS, address=address) as port, listener(STRANGER, address=address) as other:
        assert connected(OURS, port, address) == "connected"
        assert connected(STRANGER, port, address) == "ConnectionRefusedError"  # as it has answered already
        assert connected(OURS, other, address) == "connected"  # a service of the machine, say
    with listener(OURS, address=address) as port:
        assert is_ignored(STRANGER, port, address)


def test_who_binds_the_port_first_gets_no_connection() -> None:
    with listener(STRANGER) as port:
        assert connected(OURS, port) == "connected"

        set_guard(OURS, of(OURS, ports=(port,)))

        assert is_ignored(OURS, port)


@pytest.mark.long
def test_listener_that_sends_syn_cookies_is_guarded_too() -> None:
    assert accepted_from_crowd(OURS, OURS, lambda _: of(OURS)) == "accepted"
    assert accepted_from_crowd(OURS, STRANGER, lambda _: of(OURS)) == "no client"  # at a port that a rank chose
    assert accepted_from_crowd(STRANGER, OURS, lambda port: of(OURS, ports=(port,))) == "no client"  # it binds it first
    assert accepted_from_crowd(STRANGER, OURS, lambda _: replace(of(OURS), confined=True)) == "no client"
    assert accepted_from_crowd(STRANGER, STRANGER, lambda _: replace(of(OURS), confined=True)) == "accepted"


def test_connection_that_the_attempt_has_opened_lets_in_nobody_else_from_the_same_port() -> None:
    set_guard(OURS, of(OURS))
    with closing(socket.socket()) as free:
        free.bind((LOOPBACK, 0))
        port = free.getsockname()[1]
    with closing(guarded_ports._socket_of(OURS)) as refused:  # so that the port it connects from is free again
        refused.bind((LOOPBACK, 0))
        source = refused.getsockname()
        with pytest.raises(ConnectionRefusedError):
            refused.connect((LOOPBACK, port))

    with listener(OURS, port), closing(guarded_ports._socket_of(STRANGER)) as strange:
        strange.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        strange.bind(source)
        strange.settimeout(IGNORED_SECONDS)
        with pytest.raises(TimeoutError):
            strange.connect((LOOPBACK, port))


@pytest.mark.long
def test_parts_of_an_attempt_on_one_machine_reach_each_other_and_other_attempts_are_not_disturbed() -> None:
    with listener(OURS) as port, listener(STRANGER) as other, listener(STRANGER) as unknown:
        for uid in (OURS, PEER):
            set_guard(uid, of(OURS, PEER, ports=(port,)))
        set_guard(STRANGER, of(STRANGER, ports=(other,)))

        try:
            assert connected(PEER, port) == "connected"
            assert (connected(STRANGER, other), connected(STRANGER, unknown)) == ("connected", "connected")
            assert connected(STRANGER, port) == connected(PEER, other) == "ConnectionRefusedError"
            remove_guard(PEER)  # its part has ended before
            assert connected(STRANGER, port) == "ConnectionRefusedError"
        finally:
            remove_guard(STRANGER)


def test_place_on_another_machine_is_for_the_attempt_alone() -> None:
    with listener(0) as port:  # as if it was elsewhere
        set_guard(OURS, replace(of(OURS), elsewhere=frozenset({(LOOPBACK, port), ("fd00::1", port)})))

        assert connected(OURS, port) == "connected"
        assert connected(STRANGER, port) == "ConnectionRefusedError"


@pytest.fixture
def machines() -> Iterator[tuple[str, tuple[str, ...]]]:
    """This machine's address in a network, and a command for two others there, which share one network namespace."""
    holds = ["unshare", "--net", "sh", "-c", "echo; read end"]
    with subprocess.Popen(holds, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        ours, inside = "10.213.77.1", ("nsenter", f"--net=/proc/{holder.pid}/ns/net", "--")
        name = f"ty{os.getpid() % 100_000}"
        for words in (
            ("ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", str(holder.pid)),
            ("ip", "address", "add", f"{ours}/24", "dev", name),
            ("ip", "link", "set", name, "up"),
            (*inside, "ip", "address", "add", f"{OTHER_MACHINE}/24", "dev", "eth0"),
            (*inside, "ip", "address", "add", f"{THIRD_MACHINE}/24", "dev", "eth0"),
            (*inside, "ip", "link", "set", "eth0", "up"),
        ):
            subprocess.run(words, check=True, capture_output=True)
        yield ours, inside
        subprocess.run(["ip", "link", "delete", name], check=True, capture_output=True)
        holder.communicate()


@pytest.mark.long
def test_machines_without_ranks_of_the_attempt_reach_none_of_its_ports(machines) -> None:
    ours, inside = machines
    with listener(OURS, address=ours) as port, listener(OURS, address=ours) as unknown:
        with listener(STRANGER, address=OTHER_MACHINE, inside=inside) as theirs:
            assert connected(OURS, theirs, OTHER_MACHINE) == "connected"
            set_guard(OURS, replace(of(OURS), machines=frozenset({THIRD_MACHINE}), confined=True))
            assert connected(OURS, theirs, OTHER_MACHINE) == "ConnectionRefusedError"
            assert connected(STRANGER, theirs, OTHER_MACHINE) == "connected"

        set_guard(OURS, replace(of(OURS, ports=(port,)), machines=frozenset({ours, OTHER_MACHINE})))
        for each in (port, unknown):
            assert connected(PEER, each, ours, inside, source=OTHER_MACHINE) == "connected"
            assert is_ignored(PEER, each, ours, inside, source=THIRD_MACHINE)


@pytest.mark.parametrize("address", [LOOPBACK, "::1"])
def test_attempt_that_is_confined_reaches_no_service_of_the_machine(address: str) -> None:
    with listener(OURS, address=address) as port, listener(STRANGER, address=address) as service:
        set_guard(OURS, replace(of(OURS), confined=True))

        assert connected(OURS, port, address) == "connected"
        assert is_ignored(OURS, service, address)
        assert connected(STRANGER, service, address) == "connected"


def test_node_whose_operator_shares_its_network_guards_known_ports_alone() -> None:
    with listener(OURS) as port, listener(OURS) as unknown:
        set_guard(OURS, replace(of(OURS, ports=(port,)), every_port=False))

        assert connected(STRANGER, port) == "ConnectionRefusedError"
        assert connected(STRANGER, unknown) == "connected"


def test_guards_of_killed_supervisors_are_removed_and_those_of_living_ones_are_not(tmp_path) -> None:
    for uid in (OURS, PEER):
        set_guard(uid, of(uid))
    with (tmp_path / str(PEER)).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)

        with listener(OURS):  # a process that could not be killed
            sweep_guards({PEER, OURS}, locks=tmp_path)
        assert {*guarded_ports.guarded_users()} & {OURS, PEER} == {OURS, PEER}

        sweep_guards({PEER, OURS}, locks=tmp_path)

        assert {*guarded_ports.guarded_users()} & {OURS, PEER} == {PEER}
        sweep_guards({STRANGER}, locks=tmp_path)
        assert PEER in guarded_ports.guarded_users()


def test_rules_that_the_kernel_refuses_change_nothing() -> None:
    with listener(OURS) as port:
        set_guard(OURS, of(OURS, ports=(port,)))

        with pytest.raises(OSError, match="nft: "):
            set_guard(OURS, of(OURS, ports=(1 << 20,)))

        assert connected(STRANGER, port) == "ConnectionRefusedError"


def test_node_says_why_it_guards_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "is empty" in lack_of_guards("")
    assert "single user" in lack_of_guards(f"{FIRST}-{FIRST}")
    monkeypatch.setattr(guarded_ports, "_rules", lambda _: iter(["chain empty { }"]))
    assert lack_of_guards(f"{FIRST}-{FIRST + 1}") == "nftables rules do not keep another user from a port"
    monkeypatch.setattr(guarded_ports, "NFT", "no-such-nft")
    assert lack_of_guards(f"{FIRST}-{FIRST + 2}") == "nft is not installed: apt install nftables"


def test_socket_keeps_the_user_who_made_it_and_the_thread_does_not() -> None:
    with closing(guarded_ports._socket_of(OURS)) as made, closing(socket.socket()) as usual:
        assert os.fstat(made.fileno()).st_uid == OURS
        assert os.fstat(usual.fileno()).st_uid == os.geteuid()
