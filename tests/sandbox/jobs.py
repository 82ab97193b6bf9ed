"""Jobs on such a machine: two of another project, and those that try the probes."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import guards
from tests.sandbox.canaries import LIMITS, Canaries
from tests.sandbox.control import Report, copy_probes, report_of
from tests.sandbox.machines import Machine
from tests.systems.servers import free_port
from tests.systems.system import wait_for

ENDED = ("COMPLETED", "FAILED", "CANCELLED", "PREEMPTED")
# How the platform says that the kernel, or it itself, has ended a job at a limit.
AT_A_LIMIT = ("HOST_OUT_OF_MEMORY", "DISK_LIMIT_EXCEEDED")
# Numbers of probes, and the limits of the job that tries them: those that may end it have jobs of their own.
JOBS = (
    ("75,70", ("ram_mb", "cpu_cores")),  # the first: see below
    ("1-69,71,73,76-78", ("processes", "shm_mb")),
    ("74", ("storage_mb",)),
    ("72", ("storage_mb",)),
)
OTHER = """
import os, pathlib, socket, sys, time
pathlib.Path("secret.txt").write_text("of another project")
pathlib.Path(os.environ["TRAINYARD_OUTPUT_DIR"], "result.txt").write_text("of another project")
if sys.argv[1:]:
    server = socket.create_server(("0.0.0.0", int(sys.argv[1])))
    print("listening", flush=True)
    time.sleep(600)
"""


@dataclass(frozen=True)
class OtherJobs:
    """Of another project: one that runs, and listens, and one that has left a result."""

    port: int
    run_dir: Path
    result: Path


@dataclass(frozen=True)
class Attacked:
    """A machine, what is on it beside the platform, and the jobs of another project."""

    machine: Machine
    canaries: Canaries
    others: OtherJobs


def document(script: str, *arguments: str, limits: dict[str, Any] | None = None, image: str = "") -> dict[str, Any]:
    framework = {"type": "CUSTOM", "custom_script_path": script, "custom_arguments": list(arguments)}
    resources: dict[str, Any] = {"gpu_count": 1, "gpu_type": "A100"}
    if limits:
        # A node without control groups takes the job, too, which then shows what it can't hold.
        resources["limits"] = {**limits, "required": False}
    if image:
        resources["image"] = {"reference": image}
    return {
        "name": "probes",
        "training_config": {"training_type": "SFT", "base_model": {"model_id": "model"}, "framework": framework},
        "data_config": {"sources": [{"path": "data.jsonl", "format": "jsonl"}]},
        "resource_config": resources,
    }


@contextmanager
def other_jobs(machine: Machine) -> Iterator[OtherJobs]:
    place = machine.inputs / "other"
    place.mkdir()
    (place / "other.py").write_text(OTHER)
    machine.call("POST", "/v1/projects", {"name": "blue"})
    key = machine.call("POST", "/v1/keys", {"role": "user", "project": "blue", "name": "ada"})[1]["data"]["key"]

    def submit(*arguments: str) -> str:
        asked = document("other/other.py", *arguments)
        status, body = machine.call("POST", "/v1/jobs", asked, Authorization=f"Bearer {key}")
        assert status == 201, body
        return str(body["data"]["job_id"])

    port = free_port()
    running, ended = submit(str(port)), submit()
    machine.wait_for_status(ended, "COMPLETED")
    wait_for(lambda: "listening" in machine.log_lines(running), seconds=60, what=f"{running} to listen")
    run_dir = machine.data_dir / "run" / "jobs" / running / "1"
    assert (run_dir / "work" / "secret.txt").exists()
    # os.walk() ignores a run directory that vanishes.
    (result,) = (
        Path(at, "result.txt") for at, _, names in os.walk(machine.data_dir) if "result.txt" in names and ended in at
    )
    try:
        yield OtherJobs(port, run_dir, result)
    finally:
        machine.call("POST", f"/v1/jobs/{running}/cancel", {})
        machine.wait_for_status(running, "CANCELLED")


def attack(on: Attacked, run_directory: Path, *, image: str = "") -> Report:
    """Try all probes in jobs on this machine."""
    machine, folder = on.machine, "attack-in-image" if image else "attack"
    copy_probes(machine.inputs / folder, targets_on(on))

    def submit(numbers: str, names: tuple[str, ...]) -> str:
        limits = {name: LIMITS[name] for name in names}
        return machine.submit(document(f"{folder}/attack.py", numbers, limits=limits, image=image))

    report: Report = {}
    with guards.memory_kills_alone(run_directory):
        jobs = [submit(*each) for each in JOBS]
        report |= _outcomes(machine, jobs[0], JOBS[0][0])
    for job_id, (numbers, _) in zip(jobs[1:], JOBS[1:], strict=True):
        report |= _outcomes(machine, job_id, numbers)
    return report


def targets_on(on: Attacked) -> dict[str, Any]:
    machine = on.machine
    # Where no control group holds a limit, a busy machine still does.
    held = {} if machine.user == 0 else {"cpu_cores": 0.05}
    return on.canaries.targets(
        data_dir=str(machine.data_dir),
        database=str(machine.data_dir / "trainyard.db"),
        other_run_dir=str(on.others.run_dir),
        other_artifact=str(on.others.result),
        claim=str(machine.claim),
        api_port=machine.port,
        redis_port=machine.redis.port,
        **held,
    )


def _outcomes(machine: Machine, job_id: str, numbers: str) -> Report:
    """What a job's log says; for a probe that ended its job it is how."""
    cause = wait_for(lambda: _end(machine, job_id), seconds=90, what=f"the end of {job_id}")
    machine.call("POST", f"/v1/jobs/{job_id}/cancel", {})  # one that would be tried again
    wait_for(lambda: not machine.processes_of(job_id), seconds=60, what="no process of the job left")
    said = report_of(machine.log_lines(job_id))
    last = int(numbers.rpartition(",")[2].rpartition("-")[2])
    if last not in said and cause in AT_A_LIMIT:
        said[last] = {"probe": last, "title": "", "outcome": "blocked", "saw": cause}
    assert last in said, machine.story(job_id)
    return said


def _end(machine: Machine, job_id: str) -> str:
    """Why the first attempt has ended; empty while it runs."""
    job = machine.job(job_id)
    attempts = machine.get(f"/v1/jobs/{job_id}/attempts")["attempts"]
    if job["status"] in ENDED or len(attempts) > 1 or (attempts and attempts[0]["cause"]):
        return str((attempts[0]["cause"] if attempts else "") or job["error_type"] or job["status"])
    return ""
