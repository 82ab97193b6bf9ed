"""A stream of jobs for minutes or hours, and something is killed every 30 to 60 s: what becomes of them.

    python -m benchmarks.soak [--minutes 20] [--seed N] [--database sqlite|postgresql] [--training script|sft]
                              [--out docs/benchmarks/reliability.md]

The real processes on this machine: API, coordinator, two node workers with data directories of their own, Redis, the
database; every setting as it is by default. The jobs are the witnessed script of the tests (hooks, no torch, so that
imports hide nothing), which tells each step to a witness outside of the system, or real trainings of the demo's small
model. When the time is over no more is killed, every job comes to its end, and the invariants I1 to I12 of the tests
are checked. Goodput is the time of the steps that were asked for, over the time from each job's first step to its end.
The exit code is 1 when anything was lost, done twice or broken. One JSON line on standard output, the page on standard
error or in ``--out``.
"""

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from app.domain.lifecycle.states import TERMINAL
from app.host.fork_servers import agents_socket, is_listening, supervisors_socket
from benchmarks import soak_report
from benchmarks.machine import description
from benchmarks.soak_report import Happened
from tests.faults.checking import wait_until_all_ended
from tests.faults.cluster import Cluster
from tests.faults.faults import BY_NAME
from tests.faults.history import collect
from tests.systems.servers import PostgresServer
from tests.systems.system import wait_for

ROOT = Path(__file__).parents[1]
NODES, SLOTS = ("n1", "n2"), 2
AT_ONCE = 4  # jobs
LEAST_PAUSE_SECONDS, MOST_PAUSE_SECONDS = 30.0, 60.0
STEP_SECONDS = 0.1
SAVE_EVERY = 50  # steps: five seconds
END_SECONDS = 300.0
WARM_SECONDS = 180.0  # fork servers of ranks start after 15 s, and import for some
# What may happen, as often as it says: half of it costs an attempt.
KINDS = {
    "F9-kill-rank": 3,
    "F8-kill-supervisor": 3,
    "F9-kill-agent": 1,
    "F8-lose-machine": 2,
    "F13-stop-attempt-for-good": 1,
    "F11-power-cut": 1,
    "F7-kill-node-worker": 2,
    "F1-kill-api": 2,
    "F6-kill-coordinator": 2,
    "F2-kill-redis": 2,
    "F3-flushall": 1,
}


@dataclass
class Soak:
    cluster: Cluster
    rng: random.Random
    training: str
    assets: Path
    happened: list[Happened] = field(default_factory=list)

    def run(self, minutes: float) -> None:
        """Keep jobs coming and kill; returns when every one of them has ended."""
        until = time.monotonic() + minutes * 60
        due = time.monotonic() + self._pause()
        while time.monotonic() < until:
            self._keep_jobs_coming()
            if time.monotonic() > due:
                self._let_something_happen()
                due = time.monotonic() + self._pause()
            time.sleep(0.5)
        wait_until_all_ended(self.cluster, seconds=END_SECONDS)

    def _pause(self) -> float:
        return self.rng.uniform(LEAST_PAUSE_SECONDS, MOST_PAUSE_SECONDS)

    def _keep_jobs_coming(self) -> None:
        running = sum(self.cluster.job(job_id)["status"] not in TERMINAL for job_id in self.cluster.ledger.accepted)
        for _ in range(AT_ONCE - running):
            self.cluster.submit(self._document())

    def _document(self) -> dict[str, Any]:
        if self.training == "script":
            steps = self.rng.randint(600, 900)
            return self.cluster.witnessed_job(steps=steps, step_seconds=STEP_SECONDS, save_every=SAVE_EVERY)
        return sft_document(self.assets, steps=self.rng.randint(400, 600))

    def _let_something_happen(self) -> None:
        job_id = self._training_job()
        if job_id is None:
            return
        kind = self.rng.choices(list(KINDS), weights=list(KINDS.values()))[0]
        now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        self.happened.append(Happened(kind=kind, boot_ns=now, at=datetime.now(UTC), job_id=job_id))
        print(f"{datetime.now(UTC):%T} {kind} {job_id}", file=sys.stderr, flush=True)
        BY_NAME[kind].inject(self.cluster, job_id)
        self.cluster.revive()

    def _training_job(self) -> str | None:
        """One that has just begun or is about to end may be over before it is hit."""
        jobs = [self.cluster.job(job_id) for job_id in self.cluster.ledger.accepted]
        training = [job["job_id"] for job in jobs if job["status"] == "TRAINING" and 0.05 < job["progress"] < 0.9]
        return self.rng.choice(training) if training else None


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--training", choices=("script", "sft"), default="script")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(arguments)
    print(f"seed {given.seed}", file=sys.stderr, flush=True)
    machine, folder = description(), Path(tempfile.mkdtemp(prefix="trainyard-soak-"))
    try:
        with running_cluster(folder, given.database) as cluster:
            soak = Soak(cluster, random.Random(given.seed), given.training, _assets(folder, given.training))
            soak.run(given.minutes)
            # Each node searches for leftovers every ten seconds.
            time.sleep(12)
            figures = soak_report.figures(collect(cluster), soak.happened)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    settings = {name: getattr(given, name) for name in ("minutes", "seed", "database", "training")}
    report = {"benchmark": "soak", **settings, **figures, "machine": machine}
    page = soak_report.page(report)
    if given.out:
        given.out.write_text(page)
    print(page, file=sys.stderr)
    print(json.dumps(report))
    sys.exit(0 if soak_report.is_good(report) else 1)


def sft_document(assets: Path, *, steps: int) -> dict[str, Any]:
    """A real training of the demo's model."""
    return {
        "name": "soak-sft",
        "training_config": {
            "training_type": "SFT",
            "base_model": {"model_id": str(assets / "model")},
            "framework": {"type": "HF_TRAINER"},
            "hyperparameters": {"max_steps": str(steps), "learning_rate": "3e-3"},
            "max_retries": 8,
        },
        "data_config": {
            "sources": [{"path": str(assets / "text.jsonl"), "format": "jsonl"}],
            "max_seq_length": 128,
            "batch_size": 8,
        },
        "resource_config": {"gpu_count": 1, "device_type": "cpu"},
        "output_config": {"checkpoint": {"save_steps": SAVE_EVERY}},
    }


def _assets(folder: Path, training: str) -> Path:
    """Made where jobs may read."""
    assets = folder / "system" / "inputs" / "demo"
    if training == "sft":
        build = [sys.executable, "-m", "examples.build_demo_assets", "--out", str(assets)]
        subprocess.run(build, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return assets


@contextmanager
def running_cluster(folder: Path, database: str) -> Iterator[Cluster]:
    """Two nodes with the default settings and their fork servers ready, ended with the block."""
    server = PostgresServer(commits_wait=True) if database == "postgresql" else None
    try:
        if server is not None:
            server.start()
            server.execute("CREATE DATABASE trainyard")
        cluster = Cluster(folder / "system", slots=SLOTS, postgres=server, database="trainyard" if server else "")
        # The tests fork supervisors alone.
        cluster.extra = {f"node-{name}": {"TRAINYARD_NODE_WARM": "auto"} for name in NODES}
        try:
            cluster.start(*NODES)
            sockets = [of(cluster.node_dir(name)) for name in NODES for of in (supervisors_socket, agents_socket)]
            wait_for(lambda: all(map(is_listening, sockets)), seconds=WARM_SECONDS, what="fork servers")
            yield cluster
        finally:
            cluster.stop()
    finally:
        if server is not None:
            server.close()


if __name__ == "__main__":
    main(sys.argv[1:])
