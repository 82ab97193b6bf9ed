"""How long `trainyard up` takes to be ready, and how much memory each of its processes needs while nothing happens.

    python -m benchmarks.footprint [--rounds 5]

Cold is the first start on an empty data directory, warm the next one on the same. Memory is the proportional set size
(PSS): pages that processes share are counted once. One JSON line on standard output, a table on standard error.
"""

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import idle_system
from benchmarks.machine import description
from trainyard.client import Client

SETTLE_SECONDS = 5.0
JOB_SECONDS = 60.0
SCRIPT = "import time\nfrom trainyard import hooks\nhooks.init()\ntime.sleep(300)\n"
GOALS = {"warm": 2.4, "total_mb": 400.0, "supervisor_mb": 40.0}

Memory = dict[str, float]


@dataclass(frozen=True)
class Running:
    """One `trainyard up` that is ready."""

    process: "subprocess.Popen[str]"
    data_dir: Path
    seconds: float

    def memory(self) -> Memory:
        """PSS in MB of each process with its children; `up` itself is one of them."""
        roots = {path.stem: int(path.read_text()) for path in (self.data_dir / "run").glob("*.pid")}
        measured = {name: sum(map(pss_mb, family(pid))) for name, pid in sorted(roots.items())}
        return {"up": pss_mb(self.process.pid), **measured}

    def client(self) -> Client:
        url = (self.data_dir / "run" / "url").read_text().strip()
        return Client(url, (self.data_dir / "admin.key").read_text().strip())


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args(arguments).rounds
    machine = description()
    results: dict[bool, list[dict[str, Any]]] = {False: [], True: []}
    # Alternating, so that a busy minute of the machine does not fall on one of them alone.
    for _ in range(rounds):
        for with_flower in (False, True):
            results[with_flower].append(one_round(with_flower=with_flower))
    report = {"benchmark": "footprint", "rounds": rounds, **figures(results), "machine": machine}
    print(table(report), file=sys.stderr)
    report["idle"] = idle_system.idle_system()
    print(idle_system.line(report["idle"]), file=sys.stderr)
    print(json.dumps(report))


def one_round(*, with_flower: bool) -> dict[str, Any]:
    """One cold and one warm start on a directory of its own."""
    folder = Path(tempfile.mkdtemp(prefix="trainyard-footprint-"))
    try:
        with up(folder, with_flower=with_flower) as running:
            cold = running.seconds
        with up(folder, with_flower=with_flower) as running:
            warm = running.seconds
            time.sleep(SETTLE_SECONDS)
            memory = running.memory()
            supervisor = supervisor_mb(running, folder) if not with_flower else None
        return {"cold": cold, "warm": warm, "memory": memory, "supervisor": supervisor}
    finally:
        shutil.rmtree(folder)


@contextmanager
def up(folder: Path, *, with_flower: bool) -> Iterator[Running]:
    """Started in ``folder``, and stopped at the end of the block."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TRAINYARD_")}
    command = [sys.executable, "-m", "app.cli.main", "up", "--data-dir", str(folder / "data"), "--port", "0"]
    command += ["--flower-port", "5599"] if with_flower else ["--no-flower", "--no-tensorboard"]
    started = time.monotonic()
    process = subprocess.Popen(
        command, cwd=folder, env={**environment, "PYTHONUNBUFFERED": "1"}, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        if not any(line.startswith("Ready after") for line in process.stdout):
            sys.exit("`trainyard up` ended before it was ready")
        yield Running(process, folder / "data", time.monotonic() - started)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


def supervisor_mb(running: Running, folder: Path) -> float:
    """PSS of the supervisor of a script that does nothing but import the hooks."""
    (folder / "wait.py").write_text(SCRIPT)
    (folder / "data.jsonl").write_text('{"text": "a line"}\n')
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text("{}")
    client = running.client()
    job_id = client.submit(waiting_job(folder)).job_id
    deadline = time.monotonic() + JOB_SECONDS
    while client.get(job_id).status != "TRAINING":
        if time.monotonic() > deadline:
            sys.exit(f"the job did not start: {client.get(job_id).data}")
        time.sleep(0.1)
    time.sleep(SETTLE_SECONDS)
    measured = [pss_mb(pid) for pid in all_pids() if is_supervisor(pid, job_id)]
    client.cancel(job_id)
    client.wait(job_id)
    return sum(measured)


def waiting_job(folder: Path) -> dict[str, Any]:
    return {
        "name": "wait",
        "training_config": {
            "training_type": "SFT",
            "base_model": {"model_id": str(folder / "model")},
            "framework": {"type": "CUSTOM", "custom_script_path": str(folder / "wait.py")},
        },
        "data_config": {"sources": [{"path": str(folder / "data.jsonl"), "format": "jsonl"}]},
        "resource_config": {"gpu_count": 1, "device_type": "cpu"},
    }


def figures(results: dict[bool, list[dict[str, Any]]]) -> dict[str, Any]:
    """Medians, with the range beside them."""
    plain, flower = results[False], results[True]
    without = [sum(one["memory"].values()) for one in plain]
    return {
        "ready_cold_seconds": spread([one["cold"] for one in plain]),
        "ready_warm_seconds": spread([one["warm"] for one in plain]),
        "ready_warm_with_flower_seconds": spread([one["warm"] for one in flower]),
        "pss_mb": {name: spread([one["memory"][name] for one in plain]) for name in plain[0]["memory"]},
        "pss_flower_mb": spread([one["memory"]["flower"] for one in flower]),
        "pss_total_mb": spread(without),
        "pss_total_with_flower_mb": spread([sum(one["memory"].values()) for one in flower]),
        "pss_supervisor_mb": spread([one["supervisor"] for one in plain]),
    }


def spread(values: list[float]) -> dict[str, float]:
    return {"median": round(statistics.median(values), 2), "min": round(min(values), 2), "max": round(max(values), 2)}


def table(report: dict[str, Any]) -> str:
    rows = [
        ("ready, cold start (s)", report["ready_cold_seconds"], ""),
        ("ready, warm start (s)", report["ready_warm_seconds"], f"≤ {GOALS['warm']:g}"),
        ("ready, warm, with Flower (s)", report["ready_warm_with_flower_seconds"], ""),
        *((f"PSS {name} (MB)", value, "") for name, value in report["pss_mb"].items()),
        ("PSS in all without Flower (MB)", report["pss_total_mb"], f"≤ {GOALS['total_mb']:g}"),
        ("PSS Flower (MB)", report["pss_flower_mb"], ""),
        ("PSS in all with Flower (MB)", report["pss_total_with_flower_mb"], ""),
        ("PSS supervisor of a running job (MB)", report["pss_supervisor_mb"], f"≤ {GOALS['supervisor_mb']:g}"),
    ]
    lines = ["| | median | lowest | highest | goal |", "|---|---|---|---|---|"]
    lines += [f"| {what} | {v['median']:.2f} | {v['min']:.2f} | {v['max']:.2f} | {goal} |" for what, v, goal in rows]
    return "\n".join(lines)


def pss_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1000
    return 0.0


def family(pid: int) -> list[int]:
    """The process and all it started that is not an attempt's: supervisors have sessions of their own."""
    children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [pid, *(one for child in children for one in family(child))]


def all_pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").glob("[0-9]*")]


def is_supervisor(pid: int, job_id: str) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return "workers.supervisor.main" in words and job_id in words


if __name__ == "__main__":
    main(sys.argv[1:])
