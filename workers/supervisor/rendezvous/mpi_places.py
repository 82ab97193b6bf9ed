"""Addresses and ports where the nodes of a job wait for its mpirun: chosen by each node, known to the first."""

import ipaddress
from collections.abc import Callable
from dataclasses import replace

from app.database.engine import Database
from app.services.attempts import rendezvous
from app.services.attempts.work_orders import WorkOrder
from config.settings import Settings
from workers.attempt_failed import AttemptFailed
from workers.job_secrets import launch_secret
from workers.prepare.prepare import PreparedAttempt
from workers.rank.mpi import MPI, MpiNodes

PLACES = "mpi"  # key of Attempt.rendezvous, with one entry for a part


def needs_places(prepared: PreparedAttempt) -> bool:
    return prepared.plan.spec.launcher == MPI


def report(db: Database, work: WorkOrder, address: str, free_port: Callable[[str], int]) -> bool:
    """Write where this part waits for mpirun. Raises AttemptFailed and LeaseLost."""
    try:
        ipaddress.IPv4Address(address)  # names Open MPI would take for those of interfaces
    except ValueError as error:
        raise AttemptFailed(
            "NETWORK_ERROR",
            f"MPI on several nodes needs IPv4, and node {work.node} has the address {address}; set "
            "TRAINYARD_NODE_ADDRESS to one of IPv4 there",
        ) from error
    own = [address, free_port(address)]
    rendezvous.change(db, work, lambda state: {**state, PLACES: {**state.get(PLACES, {}), str(work.part): own}})
    return True


def with_nodes(db: Database, work: WorkOrder, prepared: PreparedAttempt, settings: Settings) -> PreparedAttempt:
    """What was prepared, where the agent knows the places of all parts, which all have written, and the secret.

    Raises AttemptFailed.
    """
    written = rendezvous.read(db, work).get(PLACES, {})
    places = tuple((address, port) for address, port in (written[str(part)] for part in range(len(work.node_names))))
    secret = launch_secret(settings, job_id=work.job_id, attempt=work.attempt, fence=work.fence)
    return replace(prepared, plan=replace(prepared.plan, mpi=MpiNodes(places=places, secret=secret)))
