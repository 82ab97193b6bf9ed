"""Every kind of fault, each as something that is done to a system while it trains a job, and that is over afterwards.

Numbers are those of the fault matrix: F1 the API … F44 floods of output. ``attempts`` is what the job needs then: 1 for
what must disturb no training, 2 for what costs exactly one attempt, None where it depends on the moment.
"""

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

from tests.faults import machine_faults, process_faults, server_faults
from tests.faults.cluster import Cluster

Injection = Callable[[Cluster, str], None]


@dataclass(frozen=True)
class Fault:
    name: str
    inject: Injection
    attempts: int | None


FAULTS = (
    Fault("F1-kill-api", process_faults.kill_the_api, 1),
    Fault("F2-kill-redis", server_faults.kill_redis, 1),
    Fault("F3-flushall", server_faults.empty_redis, 1),
    Fault("F3-orphaned-replica", server_faults.make_redis_an_orphaned_replica, 1),
    Fault("F4-redis-away", server_faults.take_redis_away, 1),
    Fault("F5-redis-full", server_faults.fill_redis, 1),
    Fault("F6-kill-coordinator", process_faults.kill_the_coordinator, 1),
    Fault("F6-two-coordinators", process_faults.exchange_the_coordinator, 1),
    Fault("F7-kill-node-worker", process_faults.kill_the_node_worker, 1),
    Fault("F8-kill-supervisor", process_faults.kill_the_supervisor, 2),
    Fault("F8-lose-machine", process_faults.lose_the_machine, 2),
    Fault("F9-kill-rank", process_faults.kill_a_rank, 2),
    Fault("F9-kill-agent", process_faults.kill_the_agent, 2),
    Fault("F10-ends-too-early", machine_faults.end_too_early, 1),
    Fault("F11-power-cut", process_faults.cut_the_power, 2),
    Fault("F12-stop-rank", process_faults.stop_a_rank_for_a_moment, 1),
    Fault("F12-hang", machine_faults.hang, 1),
    Fault("F13-stop-attempt-briefly", process_faults.stop_the_attempt_for_a_moment, 1),
    Fault("F13-stop-attempt-for-good", process_faults.stop_the_attempt_for_good, 2),
    Fault("F14-stop-control-plane", process_faults.stop_the_control_plane, 1),
    Fault("F14-freeze-redis", server_faults.freeze_redis, 1),
    Fault("F15-database-cut-briefly", server_faults.cut_the_database_for_a_moment, 1),
    Fault("F16-node-cut-off", server_faults.cut_a_node_off, 2),
    Fault("F18-half-open-broker", server_faults.half_open_broker, 1),
    Fault("F19-answers-lost", server_faults.lose_answers, None),
    Fault("F20-slow-network", server_faults.slow_network, 1),
    Fault("F21-resets", server_faults.reset_all_connections, None),
    Fault("F22-postgres-restart", server_faults.stop_postgres_for_a_moment, 1),
    Fault("F22-postgres-away", server_faults.stop_postgres_for_long, 2),
    Fault("F22-sessions-ended", server_faults.end_all_database_sessions, 1),
    Fault("F22-read-only", server_faults.make_the_database_read_only, 1),
    Fault("F7-doorbell-lost", machine_faults.kill_the_node_worker_as_the_doorbell_rings, None),
    Fault("F9-daemon-left", machine_faults.leave_a_daemon, 1),
    Fault("F29-bit-flipped", machine_faults.flip_a_bit_of_the_newest_checkpoint, 2),
    Fault("F30-clocks", machine_faults.set_the_clocks, 1),
    Fault("F37-doorbells", server_faults.ring_a_hundred_times, 1),
    Fault("F38-second-of-a-name", machine_faults.start_a_second_of_the_name, 1),
    Fault("F39-drained", machine_faults.drain_the_node, 2),
    Fault("F39-stopped-politely", process_faults.stop_the_node_worker_politely, 1),
    Fault("F42-cannot-be-killed", process_faults.hold_a_rank_that_nothing_ends, 2),
    Fault("F44-flood", machine_faults.flood_the_log, 1),
)
BY_NAME = {fault.name: fault for fault in FAULTS}


def of(module: ModuleType) -> tuple[Fault, ...]:
    """The faults that this module injects."""
    return tuple(fault for fault in FAULTS if fault.inject.__module__ == module.__name__)
