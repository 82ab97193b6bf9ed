"""Two projects on one node, and every tenth job attacks: is any other job hurt, does the API keep answering?

    python -m benchmarks.hostile [--minutes 10] [--database sqlite|postgresql] [--unlimited]
                                 [--only fork-bomb,…] [--out docs/benchmarks/DATE-hostile.md]

The real processes on this machine: API, coordinator, a node worker as root with bubblewrap and control groups, Redis,
the database. The innocent project runs short scripts that step, save, and write an output, four at a time, and lists
its jobs, reads them and their logs without a pause. After every ninth of its jobs the other project submits one of the
attacks of `benchmarks/hostile_script.py`, each kind in turn; none asks for limits. The node has those that an operator
of a small machine may set (``NODE_LIMITS``); with ``--unlimited`` it has only what holds by default.

At the end every innocent job must have been completed by its first attempt, with its exact steps, log and output; every
hostile job must have ended as its kind should; no request of the innocent project may have taken more than a second or
been refused; no process, run directory, control group or file of the attacks may be left. The exit code is 1 otherwise.
One JSON line on standard output, the page on standard error or in ``--out``. Needs root, some 8 GB of free memory and
disk: every attack is bounded by itself, too.
"""

import argparse
import itertools
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from app.host.fork_servers import agents_socket, is_listening, supervisors_socket
from benchmarks import hostile_report
from benchmarks.hostile_api import Project
from benchmarks.hostile_projects import ATTACKS, Hostile, Innocent, Ran, started, unexpected
from benchmarks.machine import description
from tests.systems.servers import PostgresServer
from tests.systems.system import System, wait_for
from workers.node.attempt_manager import CLEAN_SECONDS
from workers.sandbox.control_groups import CONTROLLERS, find_hierarchies

HERE = Path(__file__).parent
NODE = "n1"
SLOTS = 6
NODE_LIMITS = {
    "TRAINYARD_NODE_MAX_PROCESSES": "128",  # 64 for each of two cores; see docs/reference/isolation.md
    "TRAINYARD_NODE_MAX_RAM_MB": "1536",
    "TRAINYARD_NODE_MAX_STORAGE_MB": "1024",
    "TRAINYARD_STORAGE_MAX_OUTPUT_SIZE_MB": "10240",
}
WARM_SECONDS = 180.0  # fork servers of ranks start after 15 s, and import for some
END_SECONDS = 240.0
LEAST_FREE_MB = 2000  # of memory and disk: below, the attacks stop
TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")


@dataclass
class Extremes:
    """How far the attacks took the machine."""

    most_processes: int = 0
    least_free_memory_mb: int = sys.maxsize
    least_free_disk_mb: int = sys.maxsize

    def look(self, folder: Path) -> None:
        self.most_processes = max(self.most_processes, len(psutil.pids()))
        self.least_free_memory_mb = min(self.least_free_memory_mb, psutil.virtual_memory().available >> 20)
        self.least_free_disk_mb = min(self.least_free_disk_mb, shutil.disk_usage(folder).free >> 20)

    @property
    def are_dangerous(self) -> bool:
        return min(self.least_free_memory_mb, self.least_free_disk_mb) < LEAST_FREE_MB


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--unlimited", action="store_true", help="without the limits that an operator would set")
    parser.add_argument("--only", default=",".join(ATTACKS), help="these attacks in turn")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(arguments)
    kinds = given.only.split(",")
    if unknown := set(kinds) - set(ATTACKS):
        sys.exit(f"no attack {', '.join(sorted(unknown))}; known: {', '.join(ATTACKS)}")
    if set(find_hierarchies().parents) != set(CONTROLLERS):
        sys.exit("the hostile soak needs control groups: run it as root")
    machine, folder = description(), Path(tempfile.mkdtemp(prefix="trainyard-hostile-"))
    try:
        with running_system(folder, given.database, {} if given.unlimited else NODE_LIMITS) as system:
            figures = soaked(system, given.minutes, kinds, unlimited=given.unlimited)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    settings = {name: getattr(given, name) for name in ("minutes", "database", "unlimited", "only")}
    report = {"benchmark": "hostile", **settings, **figures, "machine": machine}
    page = hostile_report.page(report)
    if given.out:
        given.out.write_text(page)
    print(page, file=sys.stderr)
    print(json.dumps(report))
    if not hostile_report.is_good(report):
        sys.exit(1)


def soaked(system: "WatchedSystem", minutes: float, kinds: list[str], *, unlimited: bool) -> dict[str, Any]:
    """Both projects at work for that long, and everything that came of it."""
    marker = system.folder.parent.name
    innocent = Innocent(new_project(system, "blue"))
    hostile = Hostile(new_project(system, "red"), innocent, marker, itertools.cycle(kinds))
    extremes, until = Extremes(), time.monotonic() + minutes * 60

    def is_over() -> bool:
        return time.monotonic() > until or extremes.are_dangerous

    threads = [started(project.run, is_over) for project in (innocent, hostile)]
    while any(thread.is_alive() for thread in threads) and time.monotonic() < until + END_SECONDS:
        extremes.look(system.folder)
        time.sleep(0.5)
    hurt = innocent.hurt + [f"{job_id}: has not ended" for job_id in list(innocent.live)]
    time.sleep(CLEAN_SECONDS + 2)  # the node removes leftovers once in that time
    return {
        "jobs": {"innocent": innocent.submitted, "hostile": len(hostile.ran)},
        "innocent_seconds": hostile_report.spread(innocent.seconds),
        "hurt": hurt + [f"{name}: the process has ended" for name in system.ended],
        "unexpected": unexpected(hostile.ran, unlimited=unlimited),
        "left": left(system, hostile.ran, marker),
        **hostile_report.figures(innocent.project.answers, hostile.ran),
        "machine_extremes": vars(extremes),
    }


def new_project(system: System, name: str) -> Project:
    """With a key of a usual user."""
    for path, body in (("/v1/projects", {"name": name}), ("/v1/keys", {"project": name, "role": "user"})):
        status, answer = system.call("POST", path, body)
        if status != 201:
            sys.exit(f"{path} was refused: {status} {answer}")
    return Project(name, system.port, answer["data"]["key"])


def left(system: System, ran: list[Ran], marker: str) -> list[str]:
    """What is still there of jobs that have all ended."""
    found = [f"run directory {path}" for path in (system.data_dir / "run" / "jobs").glob("*/*")]
    found += [f"file {path}" for place in TEMPORARY for path in Path(place).glob(f"{marker}-*")]
    groups = find_hierarchies().parents.values()
    found += [f"group {path}" for one in ran for parent in groups for path in parent.glob(f"{one.job_id}.*")]
    for process in psutil.process_iter():
        try:
            line = " ".join(process.cmdline())
            is_theirs = "TRAINYARD_JOB_ID" in process.environ() and f"/{marker}/" in line
        except psutil.Error:
            continue
        if is_theirs or "hostile_script.py" in line or f" {marker} " in line:
            found.append(f"process {process.pid}: {line[:200]}")
    return found


@contextmanager
def running_system(folder: Path, database: str, limits: dict[str, str]) -> Iterator["WatchedSystem"]:
    """One node with its fork servers ready; ended with the block."""
    server = PostgresServer(commits_wait=True) if database == "postgresql" else None
    try:
        url = ""
        if server is not None:
            server.start()
            server.execute("CREATE DATABASE trainyard")
            url = server.url("trainyard")
        system = WatchedSystem(folder / "system", database_url=url, TRAINYARD_NODE_WARM="auto", **limits)
        try:
            prepare_inputs(system)
            system.start(NODE)
            sockets = [of(system.data_dir) for of in (supervisors_socket, agents_socket)]
            wait_for(lambda: all(map(is_listening, sockets)), seconds=WARM_SECONDS, what="fork servers")
            yield system
        finally:
            system.stop()
    finally:
        if server is not None:
            server.close()


class WatchedSystem(System):
    """Knows which of its processes have ended by themselves."""

    def start_node(self, name: str, *, config: Path | None = None) -> None:
        super().start_node(name, config=config or self.inputs / "node.toml")

    @property
    def ended(self) -> list[str]:
        return [name for name, process in self._processes.items() if process.poll() is not None]


def prepare_inputs(system: System) -> None:
    """The scripts, a model and data that only have to exist, and the node's devices."""
    for script in ("innocent_script.py", "hostile_script.py"):
        shutil.copy(HERE / script, system.inputs)
    (system.inputs / "data.jsonl").write_text('{"text": "a line"}\n')
    (system.inputs / "model").mkdir()
    (system.inputs / "model" / "config.json").write_text("{}")
    (system.inputs / "node.toml").write_text(f'[[devices]]\ntype = "cpu"\ncount = {SLOTS}\n')


if __name__ == "__main__":
    main(sys.argv[1:])
