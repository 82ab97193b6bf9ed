"""The two projects of `benchmarks/hostile.py`: one that works and asks, one whose every job attacks."""

import hashlib
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.domain.lifecycle.states import TERMINAL
from benchmarks.hostile_api import Project, go_first

STEPS, STEP_SECONDS, SAVE_EVERY = 40, 0.1, 20
AT_ONCE = 4  # jobs of the innocent project
INNOCENT_PER_HOSTILE = 9
PAUSE_SECONDS = 0.05  # between two requests
POLL_SECONDS = 0.3
CANCELLED_AFTER_SECONDS = 3.0
WAITING = ("QUEUED", "SCHEDULING", "")


@dataclass(frozen=True, kw_only=True)
class Attack:
    """``ends``: status and cause; ``says``: a line of its log, where it lives to print one.

    ``unlimited``: the same on a node whose operator has set nothing.
    """

    ends: str
    says: str = ""
    unlimited: tuple[str, str] = ("", "")
    is_cancelled: bool = False


ATTACKS = {
    "fork-bomb": Attack(
        ends="COMPLETED", says="attack: forks refused: True", unlimited=("COMPLETED", "attack: forks refused: False")
    ),
    "memory-hog": Attack(
        ends="FAILED HOST_OUT_OF_MEMORY", unlimited=("COMPLETED", "attack: held 2048 MB and a file of memory")
    ),
    "disk-filler": Attack(ends="FAILED DISK_LIMIT_EXCEEDED", unlimited=("COMPLETED", "attack: wrote 3072 MB")),
    "port-scanner": Attack(ends="COMPLETED", says="attack: open ports: []"),
    "log-flood": Attack(ends="COMPLETED", says="attack: flooded"),
    "many-files": Attack(ends="FAILED EXPORT_FAILED", says="attack: made 100000 files"),
    "sparse-file": Attack(
        ends="FAILED EXPORT_FAILED",
        says="attack: made a file of 20 GB",
        unlimited=("COMPLETED", "attack: made a file of 20 GB"),
    ),
    "daemon": Attack(ends="CANCELLED", says="attack: daemon started", is_cancelled=True),
    "metric-flood": Attack(ends="COMPLETED", says="attack: sent"),
}


@dataclass
class Ran:
    """One hostile job as it was seen; times are those of `time.monotonic`, 0 until then."""

    attack: str
    job_id: str
    began: float = 0.0
    ended: float = 0.0
    status: str = ""
    end: str = ""
    log: Sequence[str] = ()


@dataclass
class Innocent:
    """Keeps its jobs coming, asks for them all the time, and checks each at its end."""

    project: Project
    live: dict[str, float] = field(default_factory=dict)  # job → when it was submitted
    seconds: list[float] = field(default_factory=list)  # of each job, from its submission to its end
    hurt: list[str] = field(default_factory=list)
    submitted: int = 0

    def run(self, is_over: Callable[[], bool]) -> None:
        """On a thread of its own, until all have ended after the time is over."""
        go_first()
        rng = random.Random(0)
        while self.live or not is_over():
            if len(self.live) < AT_ONCE and not is_over():
                self._submit()
            self._ask(rng)

    def _submit(self) -> None:
        document = script_job(
            "innocent",
            "innocent_script.py",
            steps=str(STEPS),
            step_seconds=str(STEP_SECONDS),
            save_every=str(SAVE_EVERY),
        )
        began = time.monotonic()
        answer = self.project.ask("submit", "POST", "/v1/jobs", document)
        if answer:
            self.submitted += 1
            self.live[str(answer["job_id"])] = began

    def _ask(self, rng: random.Random) -> None:
        jobs = self._get("list", "/v1/jobs?page_size=50").get("jobs", ())
        if self.live:
            job_id = rng.choice(list(self.live))
            self._get("job", f"/v1/jobs/{job_id}")
            self._get("log", f"/v1/jobs/{job_id}/logs?follow=false&tail=200")
        self._get("health", "/health/ready")
        for job in jobs:
            if job["job_id"] in self.live and job["status"] in TERMINAL:
                self.seconds.append(time.monotonic() - self.live.pop(job["job_id"]))
                self.hurt += self._wrong_of(job["job_id"])

    def _get(self, kind: str, path: str) -> dict[str, Any]:
        time.sleep(PAUSE_SECONDS)
        return self.project.ask(kind, "GET", path)

    def _wrong_of(self, job_id: str) -> list[str]:
        """What an ended job lacks of what was asked for."""
        path = f"/v1/jobs/{job_id}"
        job = self._get("job", path)
        attempts = self._get("attempts", f"{path}/attempts").get("attempts", ())
        lines = [line["line"] for line in self._get("log", f"{path}/logs?follow=false&tail=10000").get("lines", ())]
        saved = self._get("checkpoints", f"{path}/checkpoints").get("checkpoints", ())
        found = {
            "status": (job.get("status"), "COMPLETED"),
            "steps": (job.get("current_step"), STEPS),
            "attempts": (len(attempts), 1),
            "log": (lines, [f"step {step}" for step in range(1, STEPS + 1)]),
            "checkpoints": (sorted(one["step"] for one in saved), list(range(SAVE_EVERY, STEPS + 1, SAVE_EVERY))),
            "output": (self._get("output", f"{path}/artifacts/answer.json"), expected_answer()),
        }
        ends = [f"{one['cause']}: {one['end_reason']}" for one in attempts if one["cause"]]
        return [
            f"{job_id}: {what} {got!r}, not {due!r} {ends or ''}" for what, (got, due) in found.items() if got != due
        ]


@dataclass
class Hostile:
    """After every ninth innocent job one attack, each kind in turn."""

    project: Project
    innocent: Innocent
    marker: str
    kinds: Iterator[str]
    ran: list[Ran] = field(default_factory=list)

    def run(self, is_over: Callable[[], bool]) -> None:
        """On a thread of its own, until all have ended after the time is over."""
        while True:
            if not is_over() and self.innocent.submitted >= INNOCENT_PER_HOSTILE * (len(self.ran) + 1):
                self._submit(next(self.kinds))
            live = [one for one in self.ran if not one.ended]
            for one in live:
                self._look_at(one)
            if is_over() and not live:
                return
            time.sleep(POLL_SECONDS)

    def _submit(self, attack: str) -> None:
        document = script_job(attack, "hostile_script.py", arguments=(attack, self.marker))
        answer = self.project.ask("submit", "POST", "/v1/jobs", document)
        if answer:
            self.ran.append(Ran(attack, str(answer["job_id"])))

    def _look_at(self, one: Ran) -> None:
        now = time.monotonic()
        job = self.project.ask("job", "GET", f"/v1/jobs/{one.job_id}")
        if not job:
            return
        one.status = job["status"]
        if not one.began and one.status not in WAITING:
            one.began = now
        if ATTACKS[one.attack].is_cancelled and one.status == "TRAINING" and now > one.began + CANCELLED_AFTER_SECONDS:
            self.project.ask("cancel", "POST", f"/v1/jobs/{one.job_id}/cancel", {})
        if one.status in TERMINAL:
            one.end = " ".join(filter(None, (one.status, job["error_type"])))
            log = self.project.ask("log", "GET", f"/v1/jobs/{one.job_id}/logs?follow=false&tail=20")
            one.log = [str(line["line"]) for line in log.get("lines", ())]
            one.ended = time.monotonic()


def unexpected(ran: Sequence[Ran], *, unlimited: bool) -> list[str]:
    """Hostile jobs that did not end as their attack should."""
    found = []
    for one in ran:
        attack = ATTACKS[one.attack]
        ends, says = attack.unlimited if unlimited and attack.unlimited[0] else (attack.ends, attack.says)
        if one.end != ends or not any(line.startswith(says) for line in one.log or [""]):
            found.append(f"{one.job_id} {one.attack}: {one.end or one.status} {one.log[-3:]}, not {ends} {says}")
    return found


def expected_answer() -> dict[str, Any]:
    """The output of an innocent job."""
    digest = ""
    for step in range(1, STEPS + 1):
        digest = hashlib.sha256(f"{digest} {step}".encode()).hexdigest()
    return {"steps": STEPS, "digest": digest, "strangers": 0}


def script_job(name: str, script: str, *, arguments: Sequence[str] = (), **hyperparameters: str) -> dict[str, Any]:
    """A document without limits, as those who think of no others write them."""
    framework = {"type": "CUSTOM", "custom_script_path": script, "custom_arguments": list(arguments)}
    return {
        "name": name,
        "training_config": {
            "training_type": "SFT",
            "base_model": {"model_id": "model"},
            "framework": framework,
            "hyperparameters": hyperparameters,
        },
        "data_config": {"sources": [{"path": "data.jsonl", "format": "jsonl"}]},
        "resource_config": {"gpu_count": 1, "device_type": "cpu"},
    }


def started(run: Callable[[Callable[[], bool]], None], is_over: Callable[[], bool]) -> threading.Thread:
    """A project at work."""
    thread = threading.Thread(target=run, args=(is_over,), daemon=True)
    thread.start()
    return thread
