"""Processor time of commands of `trainyard` against a real server, beside that of `python -c pass`.

    python -m benchmarks.cli [--rounds 11] [--jobs 200]

Each command in an interpreter of its own, user and system time of the process; the server, on SQLite, is in this
process and is not counted, and its coordinator finds nothing wrong in data, at once. One JSON line on standard output,
a table on standard error.
"""

import argparse
import json
import logging
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from app.database.engine import Database, make_engine
from app.domain.lifecycle.states import JobState
from app.migrations.runner import upgrade
from app.services.lifecycle import transitions
from app.services.preflight import admission, inspections
from app.services.preflight.inspection_queue import InspectionQueue
from benchmarks.machine import description
from config.environment import COMPLETION_VARIABLE
from tests.builders.factories import make_attempt, make_document, make_job, make_node
from tests.systems.apps import SECRET_KEY, Api
from tests.systems.served import serving

GOALS = {"processor_seconds": 0.25, "local_processor_seconds": 1.5, "whole_processor_seconds": 2.0}
COMPLETES = "completion of a job"  # what a shell runs for Tab: no arguments, but variables
COMMANDS = (
    "jobs list",
    "jobs show {job}",
    "logs {job}",
    "watch {job}",
    "events {job}",
    "metrics {job}",
    "checkpoints {job}",
    "attempts {job}",
    "usage",
    "nodes list",
    "batches list",
    "sweep list",
    "doctor",
    "submit {document} --dry-run",
    "submit {trained} --dry-run",
    "submit {trained}",
    "validate {trained}",
    "recipes list",
    "import {axolotl}",
    COMPLETES,
)
# On the database itself: each serves itself the part of the API that it asks.
LOCAL = ("jobs list --local", "nodes list --local", "projects list --local")
WHOLE = ("routes",)  # imports the whole application
EXPECTED = {"watch JOB": (3,), "doctor": (0, 1)}  # of a job that was cancelled; of a server without nodes
_OF_SHELLS = {"COMP_WORDS": "trainyard watch ", "COMP_CWORD": "2", COMPLETION_VARIABLE: "bash_complete"}
_AXOLOTL = """base_model: /srv/models/base
adapter: lora
datasets: [{path: /srv/data/train.jsonl, type: chat_template}]
micro_batch_size: 2
num_epochs: 1
learning_rate: 0.0002
"""
_REPORT = {"errors": [], "warnings": [], "left_out": [], "lengths": {"max": 7}, "truncated_share": 0.0, "sources": []}
BARE = [sys.executable, "-c", "pass"]


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.cli")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--jobs", type=int, default=200)
    given = parser.parse_args(arguments)
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    machine = description()
    taken = measured(given.rounds, given.jobs)
    bare = taken.pop("bare")
    report = {
        "benchmark": "cli",
        "jobs": given.jobs,
        "rounds": given.rounds,
        "bare_seconds": bare,
        "commands": {name: {"processor_seconds": used, "ratio": round(used / bare, 1)} for name, used in taken.items()},
        "goals": GOALS,
        "met": all(used <= GOALS[_goal(name)] for name, used in taken.items()),
        "machine": machine,
    }
    print(json.dumps(report))
    print(f"python -c pass: {bare:.3f} s", file=sys.stderr)
    for name, used in taken.items():
        print(f"| {name} | {used:.3f} s | {used / bare:.1f} |", file=sys.stderr)


def measured(rounds: int, jobs: int) -> dict[str, float]:
    """Medians in seconds; every command once per round. One that fails ends the benchmark."""
    folder = Path(tempfile.mkdtemp(prefix="trainyard-cli-"))
    db = Database().bind(make_engine(f"sqlite:///{folder}/trainyard.db"))
    upgrade(db.engine)
    api = Api(db, folder)
    job_id = fill(api, jobs)
    try:
        with serving(api) as served, inspecting(db):
            environment = {
                **os.environ,
                "TRAINYARD_URL": served.url,
                "TRAINYARD_API_KEY": api.key,
                "TRAINYARD_DATABASE_URL": "",
                "TRAINYARD_SECURITY_SECRET_KEY": SECRET_KEY,
            }
            return timed(job_id, environment, api, rounds)
    finally:
        db.close()
        shutil.rmtree(folder)


@contextmanager
def inspecting(db: Database) -> Iterator[None]:
    """A coordinator whose child processes find nothing wrong in data, in no time."""
    queue, over = InspectionQueue(db, "benchmark:boot:1:1"), threading.Event()

    def serve() -> None:
        while not over.wait(0.02):
            for seen in queue.free([]):
                if (task := inspections.claim(db, seen, queue.me)) is not None:
                    admission.conclude(db, task, _REPORT)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def fill(api: Api, jobs: int) -> str:
    """Stores the jobs; returns the id of one that has ended."""
    with api.db.write() as session:
        ended = make_job(session, document=make_document(name="ended"))
        make_attempt(session, ended, make_node(session))
        job_id = str(ended.id)
        transitions.transition(session, ended, JobState.CANCELLED, actor="benchmark")
        for number in range(jobs - 1):
            make_job(session, document=make_document(name=f"run-{number}"))
    return job_id


def timed(job_id: str, environment: Mapping[str, str], api: Api, rounds: int) -> dict[str, float]:
    """The database is in the API's folder, which is the data directory of commands that work on it alone."""
    module, folder = [sys.executable, "-m", "app.cli.main"], api.inputs.parent
    values = {"job": job_id, **written(folder, api.inputs)}
    shown = {name: name.upper() for name in values}
    commands = {
        "bare": BARE,
        **{line.format(**shown): [*module, *line.format(**values).split()] for line in (*COMMANDS, *LOCAL, *WHOLE)},
        COMPLETES: [sys.executable, "-c", "from app.cli.main import main; main(prog_name='trainyard')"],
    }
    taken: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            data_dir = folder if name in LOCAL else folder / "none"
            where = {"TRAINYARD_DATA_DIR": str(data_dir), **(_OF_SHELLS if name == COMPLETES else {})}
            taken[name].append(processor_seconds(name, command, {**environment, **where}))
    return {name: round(statistics.median(each), 3) for name, each in taken.items()}


def written(folder: Path, inputs: Path) -> dict[str, str]:
    """The files that commands read; jobs may read ``inputs``."""
    document, axolotl, trained = folder / "job.json", folder / "axolotl.yaml", folder / "trained.json"
    records = inputs / "train.jsonl"
    records.write_text('{"text": "hello"}\n')
    trained.write_text(json.dumps(make_document(data_config={"sources": [{"path": str(records)}]})))
    script = {"framework": {"type": "CUSTOM", "custom_command": ["true"]}}  # no data, for which the command would wait
    document.write_text(json.dumps({"name": "planned", "training_config": script, "resource_config": {}}))
    axolotl.write_text(_AXOLOTL)
    return {"document": str(document), "axolotl": str(axolotl), "trained": str(trained)}


def _goal(name: str) -> str:
    if name in WHOLE:
        return "whole_processor_seconds"
    return "local_processor_seconds" if name in LOCAL else "processor_seconds"


def processor_seconds(name: str, command: Sequence[str], environment: Mapping[str, str]) -> float:
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in EXPECTED.get(name, (0,)):
        raise RuntimeError(f"{name} ended with {process.returncode}")
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main(sys.argv[1:])
