"""nftables rules that protect the ports of ranks in the machine's network from other processes; see nft(8).

TCPStore, gloo and NCCL accept every client. The rules decide by the host user of an attempt who may connect, and whose
listener may answer: the SYN-ACK of a listener carries the user of its socket. A SYN cookie carries none; the kernel
sends cookies while too many connections are half open (tcp(7)), and they match neither ``meta skuid X`` nor
``meta skuid != X``.
"""

import fcntl
import os
import shutil
import socket
import subprocess
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from ipaddress import ip_address
from pathlib import Path

import psutil

from app.host.libc import libc
from app.host.own_users import LOCKS, SWITCHED_OFF, private_directory, uid_range
from app.host.processes import users_of_processes

NFT = "nft"
_PREFIX, _TRIAL = "trainyard_", "trial"  # tables have the number of the user after it
_FAMILIES = {"ip": (4, "127.0.0.1"), "ip6": (6, "::1")}
_SECONDS = 20.0
_OPENS, _ANSWERS = "tcp flags & (syn | ack) == syn", "tcp flags & (syn | ack) == (syn | ack)"


@dataclass(frozen=True, kw_only=True)
class Guard:
    """What the rules allow to the processes of one attempt on this machine, and to no others."""

    uids: frozenset[int]  # the host users of these processes
    ports: frozenset[int]  # on which they will listen, known beforehand
    elsewhere: frozenset[tuple[str, int]] = frozenset()  # (address, port) of listeners on other machines
    machines: frozenset[str] = frozenset()  # addresses of all machines with processes of the attempt
    every_port: bool = True  # listeners on other ports, too, accept the attempt only
    confined: bool = False  # the attempt can connect to these machines only, and here to its own listeners only


def set_guard(uid: int, guard: Guard) -> None:
    """Set the rules for the user's ports, replacing earlier ones. Raises OSError."""
    _set(f"{_PREFIX}{uid}", guard)


def remove_guard(uid: int) -> None:
    """Remove the rules for the user's ports. Idempotent; raises OSError."""
    _remove(f"{_PREFIX}{uid}")


def remove_unused_guard(uid: int) -> None:
    """Remove the rules unless the user still has processes, such as unkillable ones. Idempotent; raises OSError."""
    if uid not in set(users_of_processes()):
        remove_guard(uid)


def sweep_guards(uids: Collection[int], locks: Path = LOCKS) -> None:
    """Remove rules that killed supervisors left: their users are no longer reserved and have no processes.

    Users of other ranges are left alone, because their locks may be in another container. Raises OSError.
    """
    for uid in guarded_users():
        if uid in uids:
            with _locked(locks / str(uid), wait=False) as is_free:
                if is_free:
                    remove_unused_guard(uid)


def guarded_users() -> Iterator[int]:
    """The users for whose ports there are rules."""
    for line in _nft("list tables\n").splitlines():
        name = line.rpartition(" ")[2]
        if name.startswith(_PREFIX) and name.removeprefix(_PREFIX).isdecimal():
            yield int(name.removeprefix(_PREFIX))


def own_addresses() -> frozenset[str]:
    """IP addresses of all interfaces in this network namespace, except loopback."""
    internet = (socket.AF_INET, socket.AF_INET6)
    every = (each for found in psutil.net_if_addrs().values() for each in found if each.family in internet)
    found = {each.address.partition("%")[0] for each in every}
    return frozenset(address for address in found if not ip_address(address).is_loopback)


def own_network() -> str:
    """Identifies this network namespace among all machines."""
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot_id}/{Path('/proc/self/ns/net').stat().st_ino}"


@cache
def lack_of_guards(uids: str) -> str:
    """Why ports can't be guarded on a node with this setting (`node.uids`), found by a trial; empty if they can."""
    if not uids:
        return SWITCHED_OFF
    if os.geteuid() != 0:
        return "its worker is not root"
    if shutil.which(NFT) is None:
        return "nft is not installed: apt install nftables"
    if len(uid_range(uids)) < 2:
        return "TRAINYARD_NODE_UIDS has a single user"
    try:
        private_directory(LOCKS)
        with _locked(LOCKS / _TRIAL, wait=True):
            return _tried(*uid_range(uids)[-2:])
    except OSError as error:
        return str(error)


def _tried(uid: int, other: int) -> str:
    """Listen as one user and connect as both. This needs no process: a socket keeps the user that created it."""
    with closing(_socket_of(uid)) as listener, closing(_socket_of(uid)) as own, closing(_socket_of(other)) as strange:
        listener.bind((_FAMILIES["ip"][1], 0))
        listener.listen()
        place = listener.getsockname()
        _set(f"{_PREFIX}{_TRIAL}", Guard(uids=frozenset({uid}), ports=frozenset({place[1]})))
        try:
            own.settimeout(_SECONDS)
            own.connect(place)
            strange.settimeout(_SECONDS)
            strange.connect(place)
        except ConnectionRefusedError:
            return ""
        finally:
            _remove(f"{_PREFIX}{_TRIAL}")
    return "nftables rules do not keep another user from a port"


def _socket_of(uid: int) -> socket.socket:
    """Create it in another thread, which takes the user and loses its parent-death signal: setfsuid(2), prctl(2)."""
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(_socket_as, uid).result()


def _socket_as(uid: int) -> socket.socket:
    libc().setfsuid(uid)
    return socket.socket()


def _set(table: str, guard: Guard) -> None:
    rules = "\n".join(_rules(guard))
    _nft(f"add table inet {table}\ndelete table inet {table}\ntable inet {table} {{\n{rules}\n}}\n")


def _remove(table: str) -> None:
    _nft(f"add table inet {table}\ndelete table inet {table}\n")


def _rules(guard: Guard) -> Iterator[str]:
    for family, (version, _) in _FAMILIES.items():
        connection = f"typeof {family} saddr . tcp sport . {family} daddr . tcp dport"
        yield f"set opened{version} {{ {connection}; size 65535; flags dynamic; timeout 10s; }}"
        yield f"set listens{version} {{ typeof {family} saddr . tcp sport; size 65535; flags dynamic; timeout 10s; }}"
    yield "set answered { typeof tcp sport; size 65535; flags dynamic; timeout 10m; }"  # has room for every port
    yield "chain opens {"
    yield from _on_opening(guard)
    yield "}\nchain own {"
    yield from _on_own_answer(guard)
    yield "}\nchain answers {"
    yield from _on_answering(guard)
    yield "}\nchain leaves { type filter hook output priority filter - 5;"
    yield from _on_leaving(guard)
    yield f"{_OPENS} jump opens\n{_ANSWERS} jump answers"
    yield "}\nchain arrives { type filter hook input priority filter - 5;"
    yield from _on_arrival(guard)
    yield "}"


def _on_leaving(guard: Guard) -> Iterator[str]:
    if guard.confined:
        users = _either(guard.uids)
        for family in _FAMILIES:
            yield f"meta skuid {users} oif != lo {family} daddr != {_machines(guard, family)} reject"
        yield f"meta skuid {users} oif lo meta l4proto != tcp reject"


def _on_opening(guard: Guard) -> Iterator[str]:
    """Record connections of the attempt within this machine; reject those of others to its ports."""
    users = _either(guard.uids)
    for family, (version, _) in _FAMILIES.items():
        connection = f"{family} saddr . tcp sport . {family} daddr . tcp dport"
        yield f"oif lo meta skuid {users} update @opened{version} {{ {connection} }}"
    yield f"meta skuid {users} return"
    for family, (version, _) in _FAMILIES.items():
        connection = f"{family} saddr . tcp sport . {family} daddr . tcp dport"
        yield f"oif lo delete @opened{version} {{ {connection} }}"  # another user has the same port now
        if guard.every_port:
            yield f"oif lo {family} daddr . tcp dport @listens{version} reject with tcp reset"
    if guard.ports:
        yield f"oif lo tcp dport {_either(guard.ports)} reject with tcp reset"
    for family, (version, _) in _FAMILIES.items():
        if places := [f"{address} . {port}" for address, port in guard.elsewhere if _version(address) == version]:
            yield f"{family} daddr . tcp dport {_either(places)} reject with tcp reset"


def _on_own_answer(guard: Guard) -> Iterator[str]:
    """Record listeners of the attempt, and drop their answers to others, unless the operator shares the network."""
    if guard.every_port:
        yield "update @answered { tcp sport }"
        for family, (version, _) in _FAMILIES.items():
            connection = f"{family} daddr . tcp dport . {family} saddr . tcp sport"  # as the client has it
            yield f"oif lo update @listens{version} {{ {family} saddr . tcp sport }}"
            yield f"oif lo {connection} != @opened{version} drop"
            yield f"oif != lo {family} daddr != {_machines(guard, family)} drop"


def _on_answering(guard: Guard) -> Iterator[str]:
    """Drop what is not certainly the attempt's own answer: SYN cookies as well as answers of other users."""
    users = _either(guard.uids)
    yield f"meta skuid {users} goto own"
    if guard.ports:
        yield f"tcp sport {_either(guard.ports)} drop"
    if guard.confined:
        for family, (version, _) in _FAMILIES.items():
            connection = f"{family} daddr . tcp dport . {family} saddr . tcp sport"
            yield f"oif lo {connection} @opened{version} drop"
    if guard.every_port:
        yield f"meta skuid != {users} return"
        yield "tcp sport @answered drop"


def _on_arrival(guard: Guard) -> Iterator[str]:
    if guard.ports:
        for family in _FAMILIES:
            others = f"{family} saddr != {_machines(guard, family)}"
            yield f"iif != lo {_OPENS} tcp dport {_either(guard.ports)} {others} drop"


def _machines(guard: Guard, family: str) -> str:
    version, loopback = _FAMILIES[family]
    return _either({loopback, *(address for address in guard.machines if _version(address) == version)})


def _either(values: Iterable[object]) -> str:
    return f"{{ {', '.join(sorted(map(str, values)))} }}"


def _version(address: str) -> int:
    return ip_address(address).version


def _nft(script: str) -> str:
    """Run the script as one transaction; its output. Raises OSError."""
    try:
        done = subprocess.run(
            [NFT, "-f", "-"], input=script, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise OSError(f"nft did not answer in {_SECONDS:.0f} s") from error
    if done.returncode != 0:
        raise OSError(f"nft: {(done.stderr.strip().splitlines() or [f'exit code {done.returncode}'])[0]}")
    return done.stdout


@contextmanager
def _locked(path: Path, *, wait: bool) -> Iterator[bool]:
    """Lock the file; yields whether that succeeded, which is certain only with ``wait``."""
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        yield _lock(descriptor, wait=wait)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, *, wait: bool) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True
