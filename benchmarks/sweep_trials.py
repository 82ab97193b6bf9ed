"""A sweep of very many short trials on played devices: by how much it takes longer than the trials themselves.

    python -m benchmarks.sweep_trials [--trials 10000] [--devices 16] [--seconds 1] [--database sqlite|postgresql]

A real coordinator and a real broker make, admit, plan and end the trials of one sweep by random values; one process
plays the nodes and writes what a supervisor writes for each trial (`benchmarks/played_nodes.py`), but trains nothing.
The time runs from the creation of the sweep to its end; ideal are `trials × seconds / devices`. Beside it stands the
processor time of each process for one trial, which hardly depends on other load of the machine: where their sum is
above `seconds × cores / devices`, the machine is too small for the goal. One JSON line on standard output. A part of
`benchmarks.sweeps`.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from app.database.from_settings import open_database
from app.models import Sweep
from app.services.operations.bootstrap import prepare
from benchmarks import servers
from benchmarks.dispatch import played_environment, playing, running_process
from benchmarks.logs import document
from benchmarks.machine import description
from benchmarks.processor_time import seconds_by_child
from config.queues import COORDINATOR, worker_command
from config.settings import load_settings
from tests.systems.apps import SECRET_KEY, Api

GOAL = 1.10
JUDGED_FROM = 1_000  # trials: of fewer the start and the end of the sweep are too large a part
SLOTS = 8  # devices of a node
END_SECONDS = 3600.0


def main(arguments: list[str]) -> None:
    report = reported(arguments)
    print(table(report), file=sys.stderr)
    print(json.dumps({**report, "machine": description()}))


def reported(arguments: list[str]) -> dict[str, Any]:
    """What was measured, by arguments of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--devices", type=int, default=16, help=f"a multiple of {SLOTS}")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each trial")
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    given = parser.parse_args(arguments)
    if given.devices < SLOTS or given.devices % SLOTS:
        parser.error(f"--devices {given.devices} is not a multiple of {SLOTS}, the devices of a node")
    folder = Path(tempfile.mkdtemp(prefix="trainyard-sweep-trials-"))
    try:
        found = measured(folder, given)
    finally:
        shutil.rmtree(folder)
    ideal = given.trials * given.seconds / given.devices
    ratio = found["seconds"] / ideal
    settings = {name: getattr(given, name) for name in ("trials", "devices", "database")}
    return {"benchmark": "sweep_trials", **settings, "ideal_seconds": ideal, "ratio": round(ratio, 2), **found}


def table(report: Mapping[str, Any]) -> str:
    verdict = f"goal ≤ {GOAL}: {'kept' if report['ratio'] <= GOAL else 'NOT KEPT'}"
    if report["trials"] < JUDGED_FROM:
        verdict = f"no verdict on fewer than {JUDGED_FROM} trials"
    return (
        f"{report['trials']} short trials on {report['devices']} devices ({report['database']}): "
        f"{report['seconds']:.1f} s, {report['ratio']:.2f} of the ideal time, {verdict}\n"
        f"processor time of a trial, ms: {report['cpu_ms']}"
    )


def measured(folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    (folder / "trial.py").write_text("raise SystemExit('it is only played')\n")
    (folder / "data.jsonl").write_text('{"text": "a line"}\n')
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text("{}")
    more = {"TRAINYARD_STORAGE_ROOTS": str(folder), "TRAINYARD_SECURITY_SECRET_KEY": SECRET_KEY}
    with ExitStack() as stack:
        broker = servers.started_broker(stack)
        (url,) = servers.databases(given.database, folder, stack, ("trainyard",))
        settings = prepare(load_settings({**played_environment(folder, url, broker.url), **more}))
        db = stack.enter_context(closing(open_database(settings.database)))
        api = Api(db, folder, **more)
        command = playing(given.devices // SLOTS, SLOTS, given.seconds)
        nodes = stack.enter_context(running_process(command, settings, until="ready", more=more))
        coordinator = stack.enter_context(running_process(worker_command(COORDINATOR), settings, more=more))
        parts = {broker.pid: "broker", nodes: "nodes", coordinator: "coordinator"}
        _run(api, _sweep(folder, given.devices, given))  # until all are up and have their imports behind them
        before = seconds_by_child(os.getpid())
        seconds = _run(api, _sweep(folder, given.trials, given))
        spent = dict.fromkeys([*parts.values(), "database"], 0.0)
        for child, now in seconds_by_child(os.getpid()).items():
            spent[parts.get(child, "database")] += (now - before.get(child, 0.0)) * 1000 / given.trials
        return {"seconds": seconds, "cpu_ms": {part: round(each, 1) for part, each in spent.items()}}


def _sweep(folder: Path, trials: int, given: argparse.Namespace) -> dict[str, Any]:
    job = document(folder, folder / "trial.py")
    del job["name"]
    return {
        "name": "short",
        "job": job,
        "parameters": {"environment.X": {"type": "double", "min": 0.0, "max": 2.0}},
        "objective": {"metric": "loss", "goal": "minimize"},
        "method": {"name": "random"},
        "budget": {"max_trials": trials, "parallel_trials": given.devices},
    }


def _run(api: Api, sweep: dict[str, Any]) -> float:
    """Seconds from its creation to its end."""
    began = time.monotonic()
    sweep_id = api.data(api.post("/v1/sweeps", sweep), 201)["sweep_id"]
    while time.monotonic() - began < END_SECONDS:
        with api.db.read() as session:
            now = session.get_one(Sweep, sweep_id)
        if now.finished_at is not None:
            if now.status != "COMPLETED":
                sys.exit(f"the sweep is {now.status}: {now.status_reason}")
            return time.monotonic() - began
        time.sleep(0.1)
    sys.exit(f"the sweep did not end in {END_SECONDS:g} s")


if __name__ == "__main__":
    main(sys.argv[1:])
