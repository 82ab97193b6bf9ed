"""What befalls machines: clocks, disks, names, drains, and jobs that don't behave."""

import signal
import subprocess
from functools import partial
from typing import Any

from tests.faults.cluster import Cluster
from tests.systems.system import TRAINYARD, wait_for

DAY_SECONDS = 86_400


def set_the_clocks(cluster: Cluster, job_id: str) -> None:
    """One machine a day ahead, the coordinator a day behind: what they decide is as if nothing was."""
    home = f"node-{cluster.home(job_id)}"
    shifted = {home: DAY_SECONDS, "coordinator": -DAY_SECONDS}
    injected = cluster.points.environment  # which shifts the clock of each process that starts as a program
    _restart_with(cluster, {name: injected | {"TESTS_CLOCK_SHIFT_SECONDS": str(by)} for name, by in shifted.items()})
    second = cluster.train(steps=60, step_seconds=0.06)
    cluster.wait_until_witnessed(second, 12)
    cluster.supervisor_of(second).kill()
    cluster.wait_for_end(second)
    _restart_with(cluster, {name: {} for name in shifted})


def start_a_second_of_the_name(cluster: Cluster, job_id: str) -> None:
    """On the same directory; it says no and ends."""
    home = cluster.home(job_id)
    command = [TRAINYARD, "node", "--name", home]
    refused = subprocess.run(
        command, env=cluster.environment_of(f"node-{home}"), capture_output=True, text=True, timeout=60, check=False
    )
    assert refused.returncode != 0, refused.stderr
    assert "runs on" in refused.stderr + refused.stdout


def drain_the_node(cluster: Cluster, job_id: str) -> None:
    home = cluster.home(job_id)
    assert cluster.call("POST", f"/v1/nodes/{home}/drain", {"requeue": True})[0] == 200
    cluster.wait_for_another_attempt(job_id, seconds=40)
    assert cluster.home(job_id) != home
    attempts = cluster.get(f"/v1/jobs/{job_id}/attempts")["attempts"]
    assert attempts[0]["lost_steps"] == 0, "it saved before it went"
    assert cluster.call("POST", f"/v1/nodes/{home}/enable")[0] == 200


def flip_a_bit_of_the_newest_checkpoint(cluster: Cluster, job_id: str) -> None:
    home = f"node-{cluster.home(job_id)}"
    # Two of them, so that one is left to resume from.
    wait_for(lambda: _checkpoints(cluster, job_id)[1:], seconds=20, what="two checkpoints")
    for name in (home, "coordinator"):
        cluster.signal(name, signal.SIGSTOP)
    cluster.supervisor_of(job_id).kill()
    newest = _checkpoints(cluster, job_id)[-1]
    weights = cluster.storage / "jobs" / job_id / "checkpoints" / newest["checkpoint_id"] / "weights.bin"
    content = bytearray(weights.read_bytes())
    content[len(content) // 2] ^= 1
    weights.write_bytes(content)
    for name in (home, "coordinator"):
        cluster.signal(name, signal.SIGCONT)


def kill_the_node_worker_as_the_doorbell_rings(cluster: Cluster, job_id: str) -> None:
    """The message has left Redis but no process handles it: it is lost, and the job starts all the same."""
    killed: list[str] = []

    def look(reply: bytes, name: str) -> None:
        if b"trainyard.run" in reply and not killed:
            killed.append(name)
            cluster.signal(name, signal.SIGKILL)

    names = [f"node-{name}" for name in cluster.node_names]
    for name in names:
        cluster.line(name, "redis").on_reply(partial(look, name=name))
    second = cluster.train(steps=20)
    wait_for(lambda: killed and not cluster.is_up(killed[0]), seconds=20, what="a doorbell")
    for name in names:
        cluster.line(name, "redis").on_reply(None)
    cluster.revive()
    cluster.found_dead.clear()
    cluster.wait_for_end(second)


def flood_the_log(cluster: Cluster, job_id: str) -> None:
    flooding = cluster.train(steps=20, misbehave="flood", misbehave_at=5)
    cluster.wait_for_end(flooding)


def hang(cluster: Cluster, job_id: str) -> None:
    """The first attempt hangs; the second one completes the job."""
    hanging = cluster.train(steps=30, misbehave="hang", misbehave_at=15)
    cluster.wait_for_end(hanging, seconds=90)
    attempts = cluster.get(f"/v1/jobs/{hanging}/attempts")["attempts"]
    assert [attempt["cause"] for attempt in attempts] == ["HANG", None], attempts
    kept = [artifact["path"] for artifact in cluster.get(f"/v1/jobs/{hanging}/artifacts?kind=all")["artifacts"]]
    assert "diagnostics/stacks.000001.txt" in kept


def end_too_early(cluster: Cluster, job_id: str) -> None:
    """A script that ends with 0 in the middle of it has not done what it was asked for."""
    ending = cluster.train(steps=30, misbehave="exit", misbehave_at=15, always="yes")
    cluster.wait_for_status(ending, "FAILED", seconds=90)


def leave_a_daemon(cluster: Cluster, job_id: str) -> None:
    cluster.wait_for_end(cluster.train(steps=20, misbehave="daemon", misbehave_at=5))


def _checkpoints(cluster: Cluster, job_id: str) -> list[dict[str, Any]]:
    return list(cluster.get(f"/v1/jobs/{job_id}/checkpoints")["checkpoints"])


def _restart_with(cluster: Cluster, environments: dict[str, dict[str, str]]) -> None:
    for name, environment in environments.items():
        cluster.kill(name)
        cluster.extra[name] = environment
        cluster.restart(name)
