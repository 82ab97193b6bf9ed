"""Steps per second inside Trainyard, and of the same trl script alone.

    python -m benchmarks.overhead [--rounds 5] [--only real|tiny|dpo|gpu] [--cores N] [--threads 1]

Alternating, in each round the other side first: a job in a real `trainyard up` (sandbox, metrics of every step,
checkpoints and logs on), and `benchmarks/plain_trl.py` with the same model, records, settings and checkpoint cadence,
while no Trainyard runs. Trainings are supervised fine-tunings; the case ``dpo`` optimizes preferences of pairs. The
speed of both is that between the logging of the first and of the last step, by the clock of the machine: loading,
compiling and export do not count, what happens between the steps does, checkpoints too. A job's times are those of its
metric points. Both sides train with the same number of threads: one, which is what a job of one slot gets here (its
part of the cores), or ``--threads``, which the job asks for as ``cpu_cores``. The case ``gpu`` is only measured where
it is asked for, on a GPU that is free: bfloat16 over float32 weights, as either side does by itself.

Beside that, and less disturbed by what else runs on the machine: the processor time of a step, of the script and of the
rank; and how much of one core everything else of Trainyard takes meanwhile, from the API to the supervisor.
One JSON line on standard output, a table on standard error.
"""

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.footprint import PLAIN, all_pids, up
from benchmarks.machine import description
from workers.node.inventory import usable_cores
from workers.supervisor.ranks.usage import consumption

GOAL = 0.99
ROOT = Path(__file__).parents[1]
JOB_SECONDS = 600.0
RECORDS = 2000
SEED = 42


@dataclass(frozen=True)
class Case:
    """A training. Every record is longer than ``tokens``, so that all steps do the same work."""

    steps: int
    save_steps: int
    batch_size: int
    tokens: int
    hidden: int
    layers: int
    device: str = "cpu"
    method: str = "SFT"


# A step of a real training takes 50 ms and much more; the tiny one shows what each step costs.
CASES = {
    "real": Case(steps=60, save_steps=20, batch_size=8, tokens=64, hidden=192, layers=4),
    "tiny": Case(steps=400, save_steps=100, batch_size=2, tokens=32, hidden=64, layers=2),
    "dpo": Case(steps=60, save_steps=20, batch_size=4, tokens=64, hidden=192, layers=4, method="DPO"),
    "gpu": Case(steps=200, save_steps=100, batch_size=16, tokens=512, hidden=768, layers=8, device="cuda"),
}


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=CASES)
    parser.add_argument("--cores", type=int, default=usable_cores(), help="of this machine, for either side")
    parser.add_argument("--threads", type=int, default=1, help="of the rank and of the script")
    given = parser.parse_args(arguments)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-given.cores :])
    machine = description()
    with contextlib.suppress(PermissionError):
        os.nice(-5)  # both sides alike: what else runs on the machine disturbs less
    folder = Path(tempfile.mkdtemp(prefix="trainyard-overhead-"))
    try:
        names = [given.only] if given.only else [name for name, case in CASES.items() if case.device == "cpu"]
        cases = {name: measured(CASES[name], folder / name, given) for name in names}
    finally:
        shutil.rmtree(folder)
    report = {"benchmark": "overhead", "rounds": given.rounds, "threads": given.threads, **cases, "machine": machine}
    print(table(report), file=sys.stderr)
    print(json.dumps(report))


def measured(case: Case, folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    build(case, folder)
    sides = {"trainyard": in_trainyard, "plain": alone}
    found: dict[str, list[dict[str, float]]] = {"trainyard": [], "plain": []}
    for number in range(given.rounds):
        for side in ("trainyard", "plain") if number % 2 else ("plain", "trainyard"):
            found[side].append(sides[side](case, folder, given.threads))
            print(f"round {number}, {side}: {found[side][-1]}", file=sys.stderr)
    pairs = list(zip(found["trainyard"], found["plain"], strict=True))
    return {
        "ratio": spread([t["steps_per_second"] / p["steps_per_second"] for t, p in pairs], 4),
        "median_step_ratio": spread([p["step_ms"] / t["step_ms"] for t, p in pairs], 4),
        "cpu_ratio": spread([p["cpu_ms"] / t["cpu_ms"] for t, p in pairs], 4),
        **{side: spread([one["steps_per_second"] for one in found[side]], 2) for side in sides},
        "step_ms": {side: spread([one["step_ms"] for one in found[side]], 2) for side in sides},
        "cpu_ms": {side: spread([one["cpu_ms"] for one in found[side]], 2) for side in sides},
        "others_percent": spread([one["others_percent"] for one in found["trainyard"]], 1),
        "last_loss": {side: found[side][0]["loss"] for side in sides},
    }


def build(case: Case, folder: Path) -> None:
    """Records longer than a sequence, and a model of the wanted size that knows nothing."""
    # transformers imports it wherever it is installed, and it writes to standard output.
    sys.modules["deepspeed"] = None  # type: ignore[assignment]
    import torch  # noqa: PLC0415 – not before the folder is known: it takes seconds
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer  # noqa: PLC0415

    command = [sys.executable, "-m", "examples.build_demo_assets", "--out", str(folder / "demo")]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    lines = [json.loads(line) for line in (folder / "demo" / "train.jsonl").read_text().splitlines()]
    texts = [line["prompt"] + line["completion"] for line in lines]
    records = [record(case, texts, number) for number in range(RECORDS)]
    (folder / "data.jsonl").write_text("".join(json.dumps(each) + "\n" for each in records))
    sizes = {"hidden_size": case.hidden, "intermediate_size": 3 * case.hidden, "num_hidden_layers": case.layers}
    torch.manual_seed(SEED)
    config = AutoConfig.from_pretrained(folder / "demo" / "model", **sizes)
    model = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
    model.save_pretrained(folder / "model")
    AutoTokenizer.from_pretrained(folder / "demo" / "model").save_pretrained(folder / "model")


def record(case: Case, texts: list[str], number: int) -> dict[str, str]:
    def joined(first: int) -> str:
        return " ".join(texts[(first + k * 7) % len(texts)] for k in range(12))

    if case.method == "DPO":
        return {"prompt": texts[number % len(texts)], "chosen": joined(number + 1), "rejected": joined(number + 2)}
    return {"text": joined(number)}


def alone(case: Case, folder: Path, threads: int) -> dict[str, float]:
    out = folder / "plain"
    spec = {
        "method": case.method,
        "model": str(folder / "model"),
        "data": str(folder / "data.jsonl"),
        "out": str(out),
        "threads": threads,
        "config": {
            "max_steps": case.steps,
            "per_device_train_batch_size": case.batch_size,
            "max_length": case.tokens,
            "learning_rate": 1e-3,
            "seed": SEED,
            "data_seed": SEED,
            "use_cpu": case.device == "cpu",
            "bf16": case.device == "cuda",
            "dataloader_pin_memory": case.device == "cuda",
            "logging_steps": 1,
            "logging_nan_inf_filter": False,
            "save_strategy": "steps",
            "save_steps": case.save_steps,
            "gradient_checkpointing": False,
            "report_to": [],
            "disable_tqdm": True,
        },
    }
    path = folder / "plain.json"
    path.write_text(json.dumps(spec))
    command = [sys.executable, "-m", "benchmarks.plain_trl", str(path)]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1"}
    environment |= {"HF_HOME": str(folder / "hf")}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        watch = CpuWatch(lambda: process.pid)
        stdout, said_besides = process.communicate()
        watch.stop()
    if process.returncode != 0:
        sys.exit(f"the script alone failed: {said_besides}")
    shutil.rmtree(out)
    said = json.loads(stdout.splitlines()[-1])
    return speed(said["logged"], case, watch) | {"loss": said["loss"]}


def in_trainyard(case: Case, folder: Path, threads: int) -> dict[str, float]:
    with up(folder, PLAIN) as running:  # jobs may read what lies where it was started
        client, everything = running.client(), CpuWatch(lambda: running.process.pid)
        job_id = client.submit(document(case, folder, threads)).job_id
        watch = CpuWatch(lambda: rank_of(job_id))
        job = client.wait(job_id, timeout_seconds=JOB_SECONDS)
        watch.stop()
        everything.stop()
        if job.status != "COMPLETED":
            sys.exit(f"the job ended {job.status}: {job.data}")
        series = client.metrics(job_id)["series"]
    shutil.rmtree(folder / "data")
    logged = [(step, datetime.fromisoformat(at).timestamp()) for step, at, _ in series["loss"]]
    figures = speed(logged, case, watch) | {"loss": series["loss"][-1][2]}
    (_, begin), (_, end) = logged[0], logged[-1]
    others = everything.between(begin, end) - watch.between(begin, end)
    return {**figures, "others_percent": 100 * others / (end - begin)}


def rank_of(job_id: str) -> int | None:
    """The process that trains, once it is there."""
    for pid in all_pids():
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            if words[:4][1:3] == ["-m", "workers.trainers.main"] and any(job_id in word for word in words):
                return pid
    return None


def document(case: Case, folder: Path, threads: int) -> dict[str, Any]:
    hyperparameters = {
        "max_steps": str(case.steps),
        "learning_rate": "1e-3",
        "logging_steps": "1",
        "lr_scheduler_type": "linear",
        "warmup_ratio": "0",
        "gradient_checkpointing": "false",
    }
    return {
        "name": "overhead",
        "training_config": {
            "training_type": case.method,
            "base_model": {"model_id": str(folder / "model")},
            "framework": {"type": "HF_TRAINER"},
            "hyperparameters": hyperparameters,
        },
        "data_config": {
            "sources": [{"path": str(folder / "data.jsonl"), "format": "jsonl"}],
            "max_seq_length": case.tokens,
            "batch_size": case.batch_size,
            "seed": SEED,
        },
        "output_config": {"checkpoint": {"save_strategy": "steps", "save_steps": case.save_steps}},
        "resource_config": {"gpu_count": 1, "device_type": case.device, "cpu_cores": threads},
    }


class CpuWatch:
    """Notes ten times a second how much processor time a process and all below it have had, once it is found."""

    def __init__(self, find: Callable[[], int | None]) -> None:
        self._find = find
        self._noted: list[tuple[float, float]] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def between(self, begin: float, end: float) -> float:
        """Seconds; between two notes by proportion."""
        return self._at(end) - self._at(begin)

    def _at(self, moment: float) -> float:
        n = bisect_left(self._noted, (moment, 0.0))
        (t0, c0), (t1, c1) = self._noted[n - 1], self._noted[n]
        return c0 + (c1 - c0) * (moment - t0) / (t1 - t0)

    def _watch(self) -> None:
        pid = None
        while not self._stopped.wait(0.1):
            pid = pid or self._find()
            used = consumption(pid) if pid is not None else None
            if used is not None:
                self._noted.append((time.time(), used.cpu_seconds))


def speed(logged: list[Any], case: Case, watch: CpuWatch) -> dict[str, float]:
    """Steps per second from the first step to the last, the median step, and the processor time of one."""
    if [step for step, _ in logged] != list(range(1, case.steps + 1)):
        sys.exit(f"not every step was logged: {[step for step, _ in logged]}")
    times = [at for _, at in logged]
    steps = sorted(later - earlier for earlier, later in pairwise(times))
    return {
        "steps_per_second": (case.steps - 1) / (times[-1] - times[0]),
        "step_ms": 1000 * statistics.median(steps),
        "cpu_ms": 1000 * watch.between(times[0], times[-1]) / (case.steps - 1),
    }


def spread(values: list[float], digits: int) -> dict[str, float]:
    return {
        "median": round(statistics.median(values), digits),
        "min": round(min(values), digits),
        "max": round(max(values), digits),
    }


def table(report: dict[str, Any]) -> str:
    head = (
        "training",
        "step",
        "steps/s alone",
        "in Trainyard",
        "ratio (lowest, highest)",
        "of the median steps",
        "of processor time",
        "everything else",
        "goal",
    )
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for name in CASES:
        if name in report:
            f = report[name]
            cells = (
                name,
                f"{f['step_ms']['plain']['median']:.1f} ms",
                f"{f['plain']['median']:g}",
                f"{f['trainyard']['median']:g}",
                f"{f['ratio']['median']:.3f} ({f['ratio']['min']:.3f}, {f['ratio']['max']:.3f})",
                f"{f['median_step_ratio']['median']:.3f}",
                f"{f['cpu_ratio']['median']:.3f}",
                f"{f['others_percent']['median']:g} % of a core",
                f"≥ {GOAL}" if name != "tiny" else "",
            )
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main(sys.argv[1:])
