"""How long `trainyard up` and the other commands take, and how much memory the platform needs while nothing happens.

    python -m benchmarks.footprint [--rounds 5]

Cold is the first start on an empty data directory, warm the next one on the same. The reference is a start that
executes every process instead of forking it, as `up` does when its standard input is closed. Processor time is that of
all processes until ready, memory the proportional set size (PSS): pages that processes share are counted once. One JSON
line on standard output, a table on standard error.
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
from benchmarks.command_times import Times, times
from benchmarks.fork_servers import command_line, is_fork_server
from benchmarks.machine import description
from benchmarks.processor_time import seconds_by_child
from trainyard.client import Client

SETTLE_SECONDS = 5.0
JOB_SECONDS = 60.0
SCRIPT = "import time\nfrom trainyard import hooks\nhooks.init()\ntime.sleep(300)\n"
GOALS = {"warm": 1.6, "total_mb": 250.0, "supervisor_mb": 45.0}
FORK_SERVERS = "fork servers"  # of the node worker; what they hold, jobs need not import

PLAIN, EXECUTED, FLOWER = "plain", "executed", "with Flower"

Memory = dict[str, float]


@dataclass(frozen=True)
class Running:
    """One `trainyard up` that is ready."""

    process: "subprocess.Popen[str]"
    data_dir: Path
    seconds: float
    processor_seconds: float

    def memory(self) -> Memory:
        """PSS in MB of each process with its children; `up` itself is one of them."""
        roots = {path.stem: int(path.read_text()) for path in (self.data_dir / "run").glob("*.pid")}
        families = {name: family(pid) for name, pid in sorted(roots.items())}
        servers = {pid for pids in families.values() for pid in pids if is_fork_server(pid)}
        measured = {name: sum(pss_mb(pid) for pid in pids if pid not in servers) for name, pids in families.items()}
        return {"up": pss_mb(self.process.pid), **measured, FORK_SERVERS: sum(map(pss_mb, servers))}

    def client(self) -> Client:
        url = (self.data_dir / "run" / "url").read_text().strip()
        return Client(url, (self.data_dir / "admin.key").read_text().strip())


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args(arguments).rounds
    machine = description()
    results: dict[str, list[dict[str, Any]]] = {PLAIN: [], EXECUTED: [], FLOWER: []}
    commands: list[Times] = []
    # Alternating, so that a busy minute of the machine does not fall on one of them alone.
    for _ in range(rounds):
        for variant, found in results.items():
            found.append(one_round(variant, commands))
    report = {"benchmark": "footprint", "rounds": rounds, **figures(results, commands), "machine": machine}
    print(table(report), file=sys.stderr)
    report["idle"] = idle_system.idle_system()
    print(idle_system.line(report["idle"]), file=sys.stderr)
    print(json.dumps(report))


def one_round(variant: str, commands: list[Times]) -> dict[str, Any]:
    """One cold and one warm start on a directory of its own; the plain one measures supervisor and commands, too."""
    folder = Path(tempfile.mkdtemp(prefix="trainyard-footprint-"))
    try:
        with up(folder, variant) as running:
            cold = running.seconds
        with up(folder, variant) as running:
            time.sleep(SETTLE_SECONDS)
            measured: dict[str, Any] = {"cold": cold, "warm": running.seconds, "processor": running.processor_seconds}
            measured["memory"] = running.memory()
            if variant == PLAIN:
                job_id, measured["supervisor"] = supervisor_mb(running, folder)
                environment = {**os.environ, "TRAINYARD_DATA_DIR": str(running.data_dir)}
                commands.append(times(job_id, environment, rounds=1))
        return measured
    finally:
        shutil.rmtree(folder)


@contextmanager
def up(folder: Path, variant: str, **settings: str) -> Iterator[Running]:
    """Started in ``folder``, and stopped at the end of the block."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TRAINYARD_")}
    command = [sys.executable, "-m", "app.cli.main", "up", "--data-dir", str(folder / "data"), "--port", "0"]
    command += ["--flower-port", "5599"] if variant == FLOWER else ["--no-flower", "--no-tensorboard"]
    started = time.monotonic()
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={**environment, **settings, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=(lambda: os.close(0)) if variant == EXECUTED else None,  # noqa: PLW1509 – no threads here
    )
    try:
        assert process.stdout is not None
        if not any(line.startswith("Ready after") for line in process.stdout):
            sys.exit("`trainyard up` ended before it was ready")
        seconds = time.monotonic() - started
        yield Running(process, folder / "data", seconds, seconds_by_child(os.getpid())[process.pid])
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


def supervisor_mb(running: Running, folder: Path) -> tuple[str, float]:
    """A job whose script does nothing but import the hooks, and the PSS of its supervisor."""
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
    return job_id, sum(measured)


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


def figures(results: dict[str, list[dict[str, Any]]], commands: list[Times]) -> dict[str, Any]:
    """Medians, with the range beside them."""
    plain, executed, flower = results[PLAIN], results[EXECUTED], results[FLOWER]
    return {
        "ready_cold_seconds": spread([one["cold"] for one in plain]),
        "ready_warm_seconds": spread([one["warm"] for one in plain]),
        "ready_warm_executed_seconds": spread([one["warm"] for one in executed]),
        "ready_warm_with_flower_seconds": spread([one["warm"] for one in flower]),
        "processor_seconds": spread([one["processor"] for one in plain]),
        "processor_executed_seconds": spread([one["processor"] for one in executed]),
        "pss_mb": {name: spread([one["memory"][name] for one in plain]) for name in plain[0]["memory"]},
        "pss_flower_mb": spread([one["memory"]["flower"] for one in flower]),
        "pss_total_mb": spread([total(one["memory"]) for one in plain]),
        "pss_total_executed_mb": spread([total(one["memory"]) for one in executed]),
        "pss_total_with_flower_mb": spread([total(one["memory"]) for one in flower]),
        "pss_supervisor_mb": spread([one["supervisor"] for one in plain]),
        "commands": {
            name: {figure: spread([one[name][figure] for one in commands]) for figure in commands[0][name]}
            for name in commands[0]
        },
    }


def total(memory: Memory) -> float:
    return sum(mb for name, mb in memory.items() if name != FORK_SERVERS)


def spread(values: list[float]) -> dict[str, float]:
    return {"median": round(statistics.median(values), 2), "min": round(min(values), 2), "max": round(max(values), 2)}


def table(report: dict[str, Any]) -> str:
    rows = [
        ("ready, cold start (s)", report["ready_cold_seconds"], ""),
        ("ready, warm start (s)", report["ready_warm_seconds"], f"≤ {GOALS['warm']:g}"),
        ("ready, warm, executed (s)", report["ready_warm_executed_seconds"], ""),
        ("ready, warm, with Flower and TensorBoard (s)", report["ready_warm_with_flower_seconds"], ""),
        ("processor time until ready (s)", report["processor_seconds"], ""),
        ("processor time until ready, executed (s)", report["processor_executed_seconds"], ""),
        *((f"PSS {name} (MB)", value, "") for name, value in report["pss_mb"].items()),
        ("PSS in all without fork servers (MB)", report["pss_total_mb"], f"≤ {GOALS['total_mb']:g}"),
        ("PSS in all, executed (MB)", report["pss_total_executed_mb"], ""),
        ("PSS Flower (MB)", report["pss_flower_mb"], ""),
        ("PSS in all with Flower and TensorBoard (MB)", report["pss_total_with_flower_mb"], ""),
        ("PSS supervisor of a running job (MB)", report["pss_supervisor_mb"], f"≤ {GOALS['supervisor_mb']:g}"),
        *((f"`{name}` (s)", value["seconds"], "") for name, value in report["commands"].items()),
        *((f"`{name}` (processor s)", value["processor_seconds"], "") for name, value in report["commands"].items()),
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
    lists = Path(f"/proc/{pid}/task").glob("*/children")  # one for each thread that starts processes
    children = [int(child) for children in lists for child in children.read_text().split()]
    return [pid, *(one for child in children for one in family(child))]


def all_pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").glob("[0-9]*")]


def is_supervisor(pid: int, job_id: str) -> bool:
    words = command_line(pid)
    return "workers.supervisor.main" in words and job_id in words


if __name__ == "__main__":
    main(sys.argv[1:])
