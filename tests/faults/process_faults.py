"""Processes of ours that are killed, or stopped and not dead."""

import signal
import time
from collections.abc import Callable

import psutil

from tests.doubles.unkillable import unkillable
from tests.faults.cluster import LONG_SECONDS, SHORT_SECONDS, Cluster, is_alive
from tests.systems.system import wait_for


def kill_the_api(cluster: Cluster, job_id: str) -> None:
    cluster.kill("api")
    cluster.start_api()
    wait_for(cluster.is_ready, seconds=30, what="the API is back")


def kill_the_coordinator(cluster: Cluster, job_id: str) -> None:
    cluster.kill("coordinator")
    cluster.start_coordinator()


def exchange_the_coordinator(cluster: Cluster, job_id: str) -> None:
    """Two at once, then only the newer one."""
    cluster.start_coordinator("second")
    second = cluster.train(steps=20)
    cluster.kill("coordinator")
    cluster.wait_for_end(second)
    cluster.start_coordinator()
    cluster.kill("second")


def kill_the_node_worker(cluster: Cluster, job_id: str) -> None:
    home = f"node-{cluster.home(job_id)}"
    cluster.kill(home)
    cluster.restart(home)


def stop_the_node_worker_politely(cluster: Cluster, job_id: str) -> None:
    home = f"node-{cluster.home(job_id)}"
    cluster.signal(home, signal.SIGTERM)
    cluster.kill(home, signal.SIGTERM)
    cluster.restart(home)


def kill_the_supervisor(cluster: Cluster, job_id: str) -> None:
    cluster.supervisor_of(job_id).kill()


def kill_a_rank(cluster: Cluster, job_id: str) -> None:
    cluster.ranks_of(job_id)[0].kill()


def kill_the_agent(cluster: Cluster, job_id: str) -> None:
    agents = [p for p in cluster.processes_of(job_id) if "workers.rank.agent" in p.cmdline()]
    next(p for p in agents if not p.cmdline()[0].endswith("bwrap")).kill()


def hold_a_rank_that_nothing_ends(cluster: Cluster, job_id: str) -> None:
    """The job continues on other devices; those of the rank stay out of service until it is gone."""
    rank, home = cluster.ranks_of(job_id)[0], cluster.home(job_id)
    with unkillable(rank.pid):
        rank.kill()
        cluster.wait_for_another_attempt(job_id, seconds=40)
        attempts = cluster.get(f"/v1/jobs/{job_id}/attempts")["attempts"]
        wait_for(lambda: _out_of_service(cluster, home), seconds=5, what="devices out of service")
        assert attempts[0]["policy"] == "job_reschedule", attempts
        assert rank.is_running(), "what is tried"
    wait_for(lambda: not _out_of_service(cluster, home), seconds=25, what="devices back in service")


def lose_the_machine(cluster: Cluster, job_id: str) -> None:
    home = cluster.home(job_id)
    cluster.kill(f"node-{home}")
    cluster.supervisor_of(job_id).kill()
    cluster.wait_for_another_attempt(job_id, seconds=40)
    cluster.start_node(home)


def cut_the_power(cluster: Cluster, job_id: str) -> None:
    cluster.power_cut()
    cluster.redis.start()
    cluster.start_processes()


def stop_a_rank_for_a_moment(cluster: Cluster, job_id: str) -> None:
    rank = cluster.ranks_of(job_id)[0]
    rank.suspend()
    time.sleep(2 * SHORT_SECONDS)
    rank.resume()


def stop_the_attempt_for_a_moment(cluster: Cluster, job_id: str) -> None:
    stopped = cluster.processes_of(job_id)
    _each(stopped, psutil.Process.suspend)
    time.sleep(SHORT_SECONDS)
    _each(stopped, psutil.Process.resume)


def stop_the_attempt_for_good(cluster: Cluster, job_id: str) -> None:
    """No process continues it: the kernel's timer ends it before another attempt may begin."""
    stopped = cluster.processes_of(job_id)
    _each(stopped, psutil.Process.suspend)
    cluster.wait_for_another_attempt(job_id, seconds=40)
    assert not any(map(is_alive, stopped)), "the stopped attempt is gone"


def stop_the_control_plane(cluster: Cluster, job_id: str) -> None:
    for number in (signal.SIGSTOP, signal.SIGCONT):
        for name in ("api", "coordinator"):
            for process in [psutil.Process(cluster.pid(name)), *psutil.Process(cluster.pid(name)).children()]:
                process.send_signal(number)
        time.sleep(LONG_SECONDS if number is signal.SIGSTOP else 0)


def _each(processes: list[psutil.Process], act: Callable[[psutil.Process], None]) -> None:
    for process in processes:
        try:
            act(process)
        except psutil.NoSuchProcess:
            continue


def _out_of_service(cluster: Cluster, node: str) -> list[int]:
    devices = cluster.get(f"/v1/nodes/{node}")["devices"]
    return [device["index"] for device in devices if device["out_of_service_reason"]]
