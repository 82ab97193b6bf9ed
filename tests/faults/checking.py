"""Waits until a system is idle after its faults, and checks its history against the invariants."""

from app.domain.lifecycle.states import TERMINAL
from tests.faults.cluster import Cluster
from tests.faults.history import JobHistory, collect
from tests.faults.invariants import violations
from tests.systems.system import wait_for


def assert_sound(cluster: Cluster, *, seconds: float = 90) -> None:
    """Every accepted job ends by itself; then I1 to I12 hold."""
    wait_until_all_ended(cluster, seconds=seconds)
    wait_for(lambda: not cluster.left_of_attempts(), seconds=10, what="no process of any job")
    history = collect(cluster)
    found = violations(history)
    violated = [one for job_id, one in history.jobs.items() if job_id in str(found)]
    assert not found, "\n".join([*found, *map(summary, violated)])
    cluster.is_sound = True


def summary(one: JobHistory) -> str:
    """What explains a violation: the job's attempts, as recorded and as witnessed."""
    lines = [f"{one.job.id} {one.job.status}"]
    for a in one.attempts:
        seen = [f"{s.start_step}..{s.last_step}" for s in one.leading if s.attempt == a.number]
        lines.append(
            f"  {a.number} on {a.node_names} {a.cause} {a.end_reason!r} {a.policy} steps {a.start_step}..{a.end_step} "
            f"lost {a.lost_steps} detect {a.detect_seconds} recover {a.recover_seconds}, seen {seen}"
        )
    lines += [f"  {e.seq} {e.at:%T.%f} {e.type} {e.to_status or ''} {e.reason} {e.message}" for e in one.events]
    return "\n".join(lines)


def wait_until_all_ended(cluster: Cluster, *, seconds: float) -> None:
    """Restarts killed processes meanwhile, as a service manager does."""
    left = list(cluster.ledger.accepted)

    def ended() -> bool:
        cluster.revive()
        try:
            while left and cluster.job(left[-1])["status"] in TERMINAL:
                left.pop()
        except (OSError, AssertionError):  # the API is being started again, or its database is
            return False
        return not left

    wait_for(ended, seconds=seconds, what="the end of all jobs")
