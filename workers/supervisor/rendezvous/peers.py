"""Keeps other processes from the ports at which the ranks of several nodes meet (app.host.guarded_ports).

Each part of an attempt tells the others its machine and its user by the attempt's row, before it is prepared. When the
ports are known each has its kernel guard them, and no rank starts before all have: else a process on a machine that
comes last could be the first to connect.
"""

import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from app.database.engine import Database
from app.domain.spec.frameworks.requirements import PEERS
from app.host.guarded_ports import (
    Guard,
    own_addresses,
    own_network,
    remove_guard,
    remove_unused_guard,
    set_guard,
    sweep_guards,
)
from app.host.own_users import uid_range
from app.services.attempts import rendezvous, role_rendezvous
from app.services.attempts.rendezvous import RendezvousAddress
from app.services.attempts.work_orders import WorkOrder
from config.settings import Settings
from config.values.rules import HOST_NETWORK
from workers.attempt_failed import AttemptFailed
from workers.prepare.prepare import PreparedAttempt
from workers.supervisor.rendezvous import mpi_places

_MACHINES, _GUARDED = "machines", "guarded"  # keys of Attempt.rendezvous: by part, and a list of parts


def report(db: Database, work: WorkOrder, prepared: PreparedAttempt, address: str) -> bool:
    """Write which machine and user this part has. Idempotent. Raises LeaseLost."""
    user = prepared.plan.confinement.user
    own = {
        "network": own_network(),
        "addresses": sorted({*own_addresses(), *_numbers_if_any(address)}),
        "uid": user.uid if user is not None else os.geteuid(),
        "guards": user is not None,
    }
    rendezvous.change(db, work, lambda state: {**state, _MACHINES: {**state.get(_MACHINES, {}), str(work.part): own}})
    return True


def guard(
    db: Database,
    work: WorkOrder,
    prepared: PreparedAttempt,
    settings: Settings,
    warn: Callable[[str], None],
    place: RendezvousAddress,
) -> bool:
    """Guard the ports of all parts here, which all have written theirs, and write that this part is ready.

    ``warn`` gets why they are not guarded where they were expected to be. Raises LeaseLost, and AttemptFailed where the
    job demands it and this node can't.
    """
    state = rendezvous.read(db, work)
    why = _lack(work, prepared, settings, state, place)
    if why and prepared.plan.confinement.must_be_guarded:
        raise AttemptFailed("INTERNAL", f"this node can't keep others from the ranks' ports ({PEERS}): {why}")
    if _any_guards(work, state):
        rendezvous.change(db, work, lambda state: {**state, _GUARDED: sorted({*state.get(_GUARDED, ()), work.part})})
    if why and prepared.plan.confinement.user is not None:
        warn(f"other processes on node {work.node} may reach the ports of the ranks: {why}")
    return True


def clear(prepared: PreparedAttempt) -> None:
    """Remove the rules that a killed supervisor of this user may have left, before they hold for its ranks."""
    confinement = prepared.plan.confinement
    if confinement.user is not None and not confinement.own_network:
        with suppress(OSError):  # without nft there are none
            remove_guard(confinement.user.uid)


def are_all_guarded(db: Database, work: WorkOrder) -> bool:
    """Whether no part has to be waited for."""
    state = rendezvous.read(db, work)
    return not _any_guards(work, state) or set(state.get(_GUARDED, ())) == set(range(len(work.node_names)))


def _any_guards(work: WorkOrder, state: Mapping[str, Any]) -> bool:
    """False also where a part has an earlier version of this program, which does not say that it is ready."""
    machines = state.get(_MACHINES, {})
    return len(machines) == len(work.node_names) and any(each["guards"] for each in machines.values())


def _lack(
    work: WorkOrder, prepared: PreparedAttempt, settings: Settings, state: Mapping[str, Any], place: RendezvousAddress
) -> str:
    """Why nothing is guarded here; empty where it is from now on, until the user of the attempt is released."""
    user = prepared.plan.confinement.user
    if user is None:
        return "the attempt has no user of its own here"
    if len(state.get(_MACHINES, {})) < len(work.node_names):
        return "the supervisors of other nodes have an earlier version; upgrade them"
    must = prepared.plan.confinement.must_be_guarded
    every_port = must or settings.node.network != HOST_NETWORK
    try:
        sweep_guards(uid_range(settings.node.uids))
        user.before_release(partial(remove_unused_guard, user.uid))
        found = _guard(work, state, place)
        user.reserve_peers(found.uids)  # before any rank starts, so while their own supervisors run
        set_guard(user.uid, replace(found, every_port=every_port, confined=must))
    except OSError as error:
        return str(error)
    return ""


def _guard(work: WorkOrder, state: Mapping[str, Any], place: RendezvousAddress) -> Guard:
    machines, own = state[_MACHINES], state[_MACHINES][str(work.part)]
    here = {part for part, each in machines.items() if each["network"] == own["network"]}
    ports = [*_ports(state), ("0", place.port)]
    local = set(own["addresses"])  # machines have some in common, such as that of Docker's bridge
    return Guard(
        uids=frozenset(machines[part]["uid"] for part in here),
        ports=frozenset(port for part, port in ports if part in here),
        elsewhere=frozenset(
            (address, port)
            for part, port in ports
            if part not in here
            for address in set(machines[part]["addresses"]) - local  # a server may listen at all of them
        ),
        machines=frozenset(address for each in machines.values() for address in each["addresses"]),
    )


def _ports(state: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """(part, port) at which instances of roles, and processes that wait for mpirun, will be reached."""
    for part, instances in state.get(role_rendezvous.PLACES, {}).items():
        for each in instances:
            yield part, each["port"]
            yield part, each["rank_port"]
    for part, (_, port) in state.get(mpi_places.PLACES, {}).items():
        yield part, port


def _numbers_if_any(address: str) -> set[str]:
    """IP addresses of a machine, which its settings may name."""
    with suppress(OSError):
        return {str(found[0]).partition("%")[0] for *_, found in socket.getaddrinfo(address, None)}
    return set()
