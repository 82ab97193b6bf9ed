"""How long after its training a model answers: from COMPLETED to the first token of a stream, asked at the API's port.

    python -m benchmarks.first_token [--rounds 5] [--from-zero 3]

One `trainyard up`, LoRA trainings of a tiny model, greedy answers. `base up`: a service of the base model runs, and
loads the adapter at the first request. `from zero`: nothing serves; the request makes a service, whose first replica is
placed, loads the base model and then the adapter; `loading` is how long that replica prepares and loads. Seconds on the
clock.
"""

import argparse
import contextlib
import json
import shutil
import sys
import tempfile
import time
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.footprint import PLAIN, Running, up
from benchmarks.machine import description
from benchmarks.overhead import Case, build
from benchmarks.overhead import document as training_document
from benchmarks.start import CASE, spread, wait_for_servers
from trainyard.client import Client

BASE = "base"  # the name of its service
READY_SECONDS, POLL_SECONDS = 180.0, 0.01
GOALS = {"base up": 1.0, "from zero, without loading": 2.0}
MESSAGES = [{"role": "user", "content": "def open(path):"}]


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="with the base model up")
    parser.add_argument("--from-zero", type=int, default=3)
    given = parser.parse_args(arguments)
    machine = description()
    folder = Path(tempfile.mkdtemp(prefix="trainyard-first-token-"))
    try:
        found = measured(folder, replace(CASE, method="LORA"), given.rounds, given.from_zero)
    finally:
        shutil.rmtree(folder)
    figures = {name: spread(seconds) for name, seconds in found.items()}
    report = {"benchmark": "first_token", **vars(given), "figures": figures, "goals": GOALS, "machine": machine}
    for name, figure in figures.items():
        print(f"{name:26} {figure}", file=sys.stderr)
    print(json.dumps(report))


def measured(folder: Path, case: Case, rounds: int, from_zero: int) -> dict[str, list[float]]:
    """What → seconds of each round."""
    build(case, folder)
    found: dict[str, list[float]] = {}
    with contextlib.ExitStack() as stack:
        running = stack.enter_context(up(folder, PLAIN))
        wait_for_servers(running)
        for _ in range(from_zero):
            for name, seconds in of_zero(running, case, folder).items():
                found.setdefault(name, []).append(seconds)
        client = running.client()
        serve_base(client, folder)
        answered(client, trained(client, case, folder)[0])  # a first time, which is not counted
        for _ in range(rounds):
            job_id, completed = trained(client, case, folder)
            found.setdefault("base up", []).append(answered(client, job_id) - completed)
    return found


def of_zero(running: Running, case: Case, folder: Path) -> dict[str, float]:
    client = running.client()
    job_id, completed = trained(client, case, folder)
    seconds = answered(client, job_id) - completed
    [service] = client.services.list()
    [replica] = client.services.replicas(service["service_id"])
    loading = loaded_in(client, replica["job_id"])
    client.services.delete(service["service_id"])
    client.wait(replica["job_id"], timeout_seconds=READY_SECONDS)
    return {"from zero": seconds, "loading": loading, "from zero, without loading": seconds - loading}


def trained(client: Client, case: Case, folder: Path) -> tuple[str, float]:
    """The id of a training that has just COMPLETED, and the time when it did."""
    document: dict[str, Any] = training_document(case, folder, 1)
    job_id = client.submit(document).job_id
    job = client.wait(job_id, timeout_seconds=READY_SECONDS, poll_seconds=POLL_SECONDS)
    if job.status != "COMPLETED":
        sys.exit(f"the job ended {job.status}: {job.data}")
    return job_id, at_status(client, job_id, "COMPLETED")


def at_status(client: Client, job_id: str, status: str) -> float:
    """The time of the last transition to a status."""
    event = next(each for each in client.events(job_id, newest_first=True) if each["to_status"] == status)
    return datetime.fromisoformat(event["at"]).timestamp()


def loaded_in(client: Client, job_id: str) -> float:
    return at_status(client, job_id, "SERVING") - at_status(client, job_id, "PREPARING")


def answered(client: Client, model: str) -> float:
    """The time of the first token."""
    stream = client.services.chat(model, MESSAGES, max_tokens=4, temperature=0)
    for event in stream:
        if any(choice["delta"].get("content") for choice in event["choices"]):
            at = time.time()
            for _ in stream:
                pass  # so that the replica has nothing left to do
            return at
    sys.exit(f"{model} has answered without a token")


def serve_base(client: Client, folder: Path) -> None:
    client.services.create(
        {
            "name": BASE,
            "model": {"model_uri": str(folder / "model")},
            "replicas": {"min": 1, "max": 1},
            "adapters": {"from": "project", "max_loaded": 8},
            "resource_config": {"gpu_count": 1, "device_type": "cpu"},
        }
    )
    client.services.wait(BASE, timeout_seconds=READY_SECONDS)


if __name__ == "__main__":
    main(sys.argv[1:])
