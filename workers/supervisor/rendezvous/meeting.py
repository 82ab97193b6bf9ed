"""Rendezvous of several nodes: when all are prepared, the first node chooses address and port for rank 0."""

import fcntl
import logging
import random
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar
from urllib.parse import urlsplit

from app.database.engine import Database
from app.database.transient_errors import is_transient
from app.services.attempts import rendezvous, role_rendezvous
from app.services.attempts.rendezvous import RendezvousAddress
from app.services.attempts.work_orders import WorkOrder
from config.settings import Settings
from trainyard.protocol.run_spec import Gang
from workers.attempt_failed import AttemptFailed
from workers.prepare.prepare import PreparedAttempt
from workers.rank.agent import PORTS
from workers.run_dir.layout import write_atomically
from workers.supervisor.rendezvous import mpi_places, peers
from workers.supervisor.rendezvous.role_places import places_of, with_places

T = TypeVar("T")
log = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
GUARD_SECONDS = 0.1  # all parts guard their ports at about the same time
LOOPBACK = "127.0.0.1"
SIOCGIFADDR = 0x8915
DISCARD = 9  # nothing is sent: connecting a UDP socket only asks the kernel for the route
TRIES = 200


def meet(
    settings: Settings,
    db: Database,
    work: WorkOrder,
    prepared: PreparedAttempt,
    *,
    is_over: Callable[[], bool],
    warn: Callable[[str], None],
) -> PreparedAttempt | None:
    """Wait for the other nodes of a gang and add the rendezvous to what was prepared; single nodes return at once.

    ``warn`` writes to the job's history. None when the attempt is over before; its cause is recorded elsewhere and must
    not become a failure of this node.

    Raises AttemptFailed when this node would resume from another checkpoint than the first one, and LeaseLost.
    """
    peers.clear(prepared)
    if not work.is_gang:
        return with_places(prepared, places_of(work, LOOPBACK, free_port)) if work.instances else prepared
    address = _number_of(own_address(settings))
    _report_places(db, work, prepared, address, is_over)
    guard = partial(peers.guard, db, work, prepared, settings, warn)
    place = _guarded_place(db, work, address, prepared.start.checkpoint_id, guard, is_over)
    if place is None:
        return None
    if place.checkpoint_id != prepared.start.checkpoint_id:
        raise AttemptFailed(
            "STORAGE_ERROR",
            f"node {work.node_names[0]} resumes from checkpoint {place.checkpoint_id}, which node {work.node} does not "
            "find: do all nodes have the same storage (TRAINYARD_STORAGE_URL)?",
        )
    plan = replace(prepared.plan, spec=replace(prepared.plan.spec, gang=_gang(work, place, address)))
    prepared = replace(prepared, plan=plan)
    if work.instances:
        places = _wait_for(lambda: role_rendezvous.places(db, work), is_over)
        return with_places(prepared, places) if places is not None else None
    write_atomically(plan.spec_path, plan.spec.to_document())
    if mpi_places.needs_places(prepared):
        return _wait_for(lambda: mpi_places.with_nodes(db, work, prepared, settings), is_over)
    return prepared


def _report_places(
    db: Database, work: WorkOrder, prepared: PreparedAttempt, address: str, is_over: Callable[[], bool]
) -> None:
    """Of this node, its instances of roles, and the process that waits for mpirun. Raises AttemptFailed."""
    _wait_for(lambda: peers.report(db, work, prepared, address), is_over)
    if work.instances:
        own = places_of(work, address, free_port)
        _wait_for(lambda: role_rendezvous.report_places(db, work, own), is_over)
    if mpi_places.needs_places(prepared):
        _wait_for(lambda: mpi_places.report(db, work, address, free_port), is_over)


def _gang(work: WorkOrder, place: RendezvousAddress, own_address: str) -> Gang:
    return Gang(
        node_rank=work.part,
        nodes=len(work.node_names),
        local_ranks=work.ranks_per_node,
        address=place.address,
        port=place.port,
        interface=interface_of(own_address),
    )


def _guarded_place(
    db: Database,
    work: WorkOrder,
    address: str,
    checkpoint_id: str | None,
    guard: Callable[[RendezvousAddress], bool],
    is_over: Callable[[], bool],
) -> RendezvousAddress | None:
    """Where rank 0 will listen, published by the first node as soon as all others are prepared.

    That node guards it before the others know it, and no node starts its ranks before all have guarded it.
    """
    if work.part == 0:
        if not _wait_for(lambda: rendezvous.are_others_prepared(db, work), is_over):
            return None
        place = RendezvousAddress(address=address, port=free_port(address), checkpoint_id=checkpoint_id)
        _wait_for(lambda: guard(place), is_over)
        _wait_for(lambda: rendezvous.publish_address(db, work, place), is_over)
    else:
        _wait_for(lambda: rendezvous.report_prepared(db, work), is_over)
        found = _wait_for(lambda: rendezvous.place(db, work), is_over)
        if found is None:
            return None
        place = found
        _wait_for(lambda: guard(place), is_over)
    return place if _wait_for(lambda: peers.are_all_guarded(db, work), is_over, GUARD_SECONDS) else None


def own_address(settings: Settings) -> str:
    """The configured address, else the one from which this machine reaches the broker, as the other nodes do.

    Raises AttemptFailed when there is no route.
    """
    if settings.node.address:
        return settings.node.address
    host = urlsplit(settings.broker.url).hostname
    if not host:  # a socket of this machine
        return LOOPBACK
    try:
        family, *_, target = socket.getaddrinfo(host, DISCARD, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(target)
            return str(probe.getsockname()[0])
    except OSError as error:
        raise AttemptFailed(
            "NETWORK_ERROR", f"this node's address can't be determined ({error}); set TRAINYARD_NODE_ADDRESS"
        ) from error


def _number_of(address: str) -> str:
    """The IPv4 address where the node's setting is a name: other nodes may find another one, or none, by the name.

    A name that is this machine's loopback here, as hosts files have it, stays a name: there others may find the right
    one. Raises AttemptFailed.
    """
    if ":" in address:
        return address
    try:
        found = socket.gethostbyname(address)
    except OSError as error:
        raise AttemptFailed(
            "NETWORK_ERROR", f"TRAINYARD_NODE_ADDRESS of this node is {address}, which leads nowhere: {error}"
        ) from error
    return address if found.startswith("127.") else found


def free_port(address: str) -> int:
    """A TCP port of the address that is free now.

    If another process takes it before rank 0 does, the attempt fails and the next one chooses another. Raises
    AttemptFailed when the address does not belong to this machine.
    """
    for _ in range(TRIES):
        port = random.randrange(*PORTS)  # noqa: S311 – spreads jobs, hides nothing
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            with socket.socket(family) as probe:
                probe.bind((address, port))
                return port
        except OSError as error:
            last_error = error
    raise AttemptFailed("NETWORK_ERROR", f"no port of {address} is free for the ranks to meet at: {last_error}")


def interface_of(address: str) -> str:
    """The network interface that has the address; empty when unknown, as for IPv6."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            asked = struct.pack("256s", name.encode()[:15])
            try:
                answer = fcntl.ioctl(probe, SIOCGIFADDR, asked)
            except OSError:  # it has none
                continue
            if socket.inet_ntoa(answer[20:24]) == address:
                return name
    return ""


def _wait_for(ask: Callable[[], T | None], is_over: Callable[[], bool], pause: float = LOOK_SECONDS) -> T | None:
    """The first answer that is truthy, across transient errors of the database; None when the attempt is over."""
    while not is_over():
        try:
            if found := ask():
                return found
        except Exception as error:
            if not is_transient(error):
                raise
            log.warning("the database can't be asked about the other nodes yet: %s", error)
        time.sleep(pause)
    return None
