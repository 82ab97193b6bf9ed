"""Probes 39 and 56 to 68: services of the machine and beyond it, sockets, and settings of the network."""

import contextlib
import functools
import os
import socket
import struct
from pathlib import Path

from tests.sandbox.probes.probing import Blocked, Targets, probe, tried

METADATA = "169.254.169.254"
ELSEWHERE = "192.0.2.1"  # an address of no machine: RFC 5737
PORTS = (20000, 32000)  # where jobs of several ranks meet
SECONDS = 2.0
SOCKETS = (
    *("/run/docker.sock", "/var/run/docker.sock", "/run/containerd/containerd.sock", "/run/podman/podman.sock"),
    *("/run/dbus/system_bus_socket", "/run/systemd/private", "/run/systemd/journal/stdout", "/run/crio/crio.sock"),
)
_HTTP = b"GET / HTTP/1.0\r\n\r\n"
_QUERY = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07example\x03org\x00\x00\x01\x00\x01"
# Protocols of the kernel that are no network of jobs: (family, type, protocol) of socket(2).
FAMILIES = {
    "key": (15, 3, 2),
    "netlink audit": (16, 3, 9),
    "netlink netfilter": (16, 3, 12),
    "rds": (21, 5, 0),
    "can": (29, 3, 1),
    "tipc": (30, 1, 0),
    "bluetooth": (31, 3, 1),
    "alg": (38, 5, 0),
    "vsock": (40, 1, 0),
    "xdp": (44, 3, 0),
}


def answer(host: str, port: int, said: bytes = b"") -> str:
    """What a service answers. Raises OSError."""
    with socket.create_connection((host, port), SECONDS) as connection:
        connection.sendall(said)
        return f"{connection.recv(60)!r}"


@probe(39, "see sockets of the machine in /proc/net")
def sockets(targets: Targets) -> str:
    port, name = f":{targets.service_port:04X} ", f"@{targets.abstract_socket}"
    return tried({"tcp": lambda: _in_file("/proc/net/tcp", port), "unix": lambda: _in_file("/proc/net/unix", name)})


def _in_file(path: str, text: str) -> str:
    if text not in Path(path).read_text():
        raise Blocked("own sockets alone")
    return text


@probe(56, "reach the API on loopback")
def api(targets: Targets) -> str:
    return answer("127.0.0.1", targets.api_port, _HTTP)


@probe(57, "reach Redis on loopback")
def redis(targets: Targets) -> str:
    return answer("127.0.0.1", targets.redis_port, b"PING\r\n")


@probe(58, "reach a service of the machine on loopback")
def service(targets: Targets) -> str:
    return answer("127.0.0.1", targets.service_port)


@probe(59, "reach the cloud's metadata")
def metadata(targets: Targets) -> str:
    return answer(METADATA, 80, _HTTP)


@probe(60, "find a way to the internet")
def internet(targets: Targets) -> str:
    return _routed(ELSEWHERE, 443)


def _routed(host: str, port: int) -> str:
    """Finds a route without sending anything."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        datagrams.connect((host, port))
        return f"a route from {datagrams.getsockname()[0]}"


@probe(61, "reach an abstract Unix socket of the machine")
def abstract_socket(targets: Targets) -> str:
    return _connected(f"\0{targets.abstract_socket}")


@probe(62, "reach Unix sockets of services")
def path_sockets(targets: Targets) -> str:
    return tried({path: functools.partial(_connected, path) for path in (targets.path_socket, *SOCKETS)})


def _connected(address: str) -> str:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(SECONDS)
        connection.connect(address)
        return "connected"


@probe(63, "reach a resolver")
def resolver(targets: Targets) -> str:
    lines = [line.split() for line in Path("/etc/resolv.conf").read_text().splitlines()] if _has_resolver() else []
    named = [words[1] for words in lines if len(words) > 1 and words[0] == "nameserver" and "." in words[1]]
    return tried(
        {"on loopback": lambda: _resolved(targets.resolver_port)}
        | {host: functools.partial(_routed, host, 53) for host in named if not host.startswith("127.")}
    )


def _has_resolver() -> bool:
    return Path("/etc/resolv.conf").exists()  # no image needs one


def _resolved(port: int) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        datagrams.settimeout(SECONDS)
        datagrams.connect(("127.0.0.1", port))
        datagrams.send(_QUERY)
        return f"{len(datagrams.recv(512))} bytes"


@probe(64, "make raw and packet sockets")
def raw_sockets(targets: Targets) -> str:
    kinds = {"raw": (socket.AF_INET, socket.SOCK_RAW, 1), "packet": (socket.AF_PACKET, socket.SOCK_RAW, 0)}
    return tried({name: functools.partial(_made, *kind) for name, kind in kinds.items()})


def _made(family: int, kind: int, protocol: int) -> str:
    socket.socket(family, kind, protocol).close()
    return "made"


@probe(65, "listen on all addresses")
def listening(targets: Targets) -> str:
    with contextlib.suppress(OSError), socket.create_server(("0.0.0.0", 81)):
        return "a port of the system"
    with socket.create_server(("0.0.0.0", 0)) as server:
        return f"port {server.getsockname()[1]}; 81 is refused"


@probe(66, "change addresses of the network")
def addresses(targets: Targets) -> str:
    add_address("127.0.0.9")
    return "an address more"


def add_address(address: str) -> None:
    """To the loopback interface, by rtnetlink(7). Raises OSError."""
    packed = socket.inet_aton(address)
    local = struct.pack("=HH4s", 8, 2, packed)  # IFA_LOCAL
    body = struct.pack("=BBBBi", socket.AF_INET, 32, 0, 0, socket.if_nametoindex("lo")) + local
    header = struct.pack("=IHHII", 16 + len(body), 20, 0x605, 1, 0)  # RTM_NEWADDR; REQUEST, ACK, CREATE, EXCL
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as kernel:
        kernel.send(header + body)
        number = -struct.unpack_from("=i", kernel.recv(4096), 16)[0]
    if number:
        raise OSError(number, os.strerror(number))


@probe(67, "make sockets of protocols that lead into the kernel")
def families(targets: Targets) -> str:
    return tried({name: functools.partial(_made, *kind) for name, kind in FAMILIES.items()})


@probe(68, "find ports of other jobs")
def other_jobs(targets: Targets) -> str:
    found = [port for port in range(*PORTS) if _is_open(port)]
    if not found:
        raise Blocked("none is open")
    return f"ports {found[:5]}"


def _is_open(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0
