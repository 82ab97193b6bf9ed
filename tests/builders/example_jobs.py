"""Every document of examples/jobs through one real system, and what is known of each job once it has ended.

``python -m tests.builders.example_jobs`` runs each as it is, one after the other, and says how long it takes.
"""

import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from app.domain.spec.hyperparameters.rlhf import method_of
from tests.systems.places import running_places
from tests.systems.system import System, wait_for

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted((ROOT / "examples" / "jobs").glob("*.json"))
ENDED = {"COMPLETED", "FAILED", "CANCELLED", "PREEMPTED"}
# What can stand for their placeholders where nothing is run.
SOMEWHERE = {
    "ASSETS": "/srv/demo",
    "EXAMPLES": "/srv/examples",
    "HTTP": "https://data.example.org",
    "BUCKET": "corpus",
    "REPOSITORY": "acme/docstrings",
    "JOB": "job-1",
}
# Submitted when the other job is done, because it resumes from there or uses its result.
GOES_ON_FROM = {"resume-best": "validation-test", "rlhf-judged": "rlhf-reward"}


@dataclass(frozen=True)
class Ended:
    """A job after its end, seen as a client sees it."""

    system: System
    job: Mapping[str, Any]
    assets: Path

    @property
    def job_id(self) -> str:
        return str(self.job["job_id"])

    @property
    def output(self) -> Mapping[str, Any]:
        return dict(self.job["output_config"])

    @cached_property
    def series(self) -> Mapping[str, list[float]]:
        points = self.system.get(f"/v1/jobs/{self.job_id}/metrics")["series"]
        return {name: [value for _, _, value in series] for name, series in points.items()}

    @cached_property
    def report(self) -> Mapping[str, Any]:
        return dict(self.system.get(f"/v1/jobs/{self.job_id}/report"))

    @cached_property
    def artifacts(self) -> list[str]:
        return [a["path"] for a in self.system.get(f"/v1/jobs/{self.job_id}/artifacts")["artifacts"]]

    @cached_property
    def checkpoints(self) -> list[Mapping[str, Any]]:
        return list(self.system.get(f"/v1/jobs/{self.job_id}/checkpoints")["checkpoints"])

    @cached_property
    def preflight(self) -> Mapping[str, Any]:
        events = self.system.get(f"/v1/jobs/{self.job_id}/events?page_size=100")["events"]
        return dict(next(event["data"] for event in events if event["type"] == "job.preflight"))

    @property
    def story(self) -> str:
        return self.system.story(self.job_id)

    def download(self, folder: Path) -> Path:
        """The artifacts as a directory."""
        for name in self.artifacts:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(self.system.download(f"/v1/jobs/{self.job_id}/artifacts/{name}"))
        return folder


def filled_in(path: Path, places: Mapping[str, str]) -> dict[str, Any]:
    """The document with each ``@NAME@`` replaced."""
    text = path.read_text(encoding="utf-8")
    for name, place in places.items():
        text = text.replace(f"@{name}@", place)
    return dict(json.loads(text))


def pair_of(document: Mapping[str, Any]) -> tuple[str, str]:
    """Framework and method, as workers.trainers.registry has them."""
    training = document["training_config"]
    return training["framework"]["type"], method_of(training["training_type"], training.get("hyperparameters", {}))


def shortened(document: dict[str, Any], steps: int, every: int) -> dict[str, Any]:
    """The same document with fewer steps, saving and evaluating more often: what it shows needs no more."""
    training, checkpoint = document["training_config"], document["output_config"]["checkpoint"]
    training["hyperparameters"]["max_steps"] = str(steps)
    for section, name in ((training.get("evaluation", {}), "steps"), (checkpoint, "save_steps")):
        if name in section:
            section[name] = every
    return document


class Runner:
    """Submits documents as early as they can be, and waits for the end of all of them."""

    def __init__(self, system: System, assets: Path) -> None:
        self._system = system
        self._assets = assets
        self._ids: dict[str, str] = {}
        self.seconds: dict[str, float] = {}

    def run(self, documents: Mapping[str, dict[str, Any]], *, seconds: float) -> dict[str, Ended]:
        """What became of each document, by its name."""
        waiting = dict(documents)
        started = time.monotonic()

        def all_ended() -> bool:
            self._submit_those_that_can_be(waiting)
            states = {job["job_id"]: job["status"] for job in self._system.get("/v1/jobs?page_size=100")["jobs"]}
            for name, job_id in self._ids.items():
                if name not in self.seconds and states.get(job_id) in ENDED:
                    self.seconds[name] = time.monotonic() - started
            time.sleep(0.3)
            return documents.keys() <= self.seconds.keys()

        wait_for(all_ended, seconds=seconds, what="the end of all examples")
        return {name: Ended(self._system, self._system.job(self._ids[name]), self._assets) for name in documents}

    def _submit_those_that_can_be(self, waiting: dict[str, dict[str, Any]]) -> None:
        for name, document in list(waiting.items()):
            first = GOES_ON_FROM.get(name)
            if first is None or first in self.seconds:
                text = json.dumps(document).replace("@JOB@", self._ids.get(first or "", ""))
                self._ids[name] = self._system.submit(json.loads(text))
                del waiting[name]


def main() -> None:
    """Prints name, end and seconds of each document, or of those that are named."""
    chosen = sys.argv[1:] or [path.stem for path in DOCUMENTS]
    with tempfile.TemporaryDirectory() as folder:
        assets = Path(folder) / "demo"
        subprocess.run([sys.executable, "-m", "examples.build_demo_assets", "--out", str(assets)], cwd=ROOT, check=True)
        with running_places(assets) as places:
            system = System(Path(folder) / "system", **places.settings)
            try:
                system.start("n1")
                documents = {path.stem: filled_in(path, places.names) for path in DOCUMENTS}
                _measure(Runner(system, assets), documents, chosen)
            finally:
                system.stop()


def _measure(runner: Runner, documents: Mapping[str, dict[str, Any]], chosen: list[str]) -> None:
    for name in sorted(chosen, key=lambda each: each in GOES_ON_FROM):
        ended = runner.run({name: documents[name]}, seconds=3600)[name]
        losses = ended.series.get("loss", [math.nan])
        took = f"{runner.seconds[name]:.0f} s, loss {losses[0]:.2f} to {losses[-1]:.2f}"
        print(name, ended.job["status"], took, flush=True)  # noqa: T201 – for the person who asked


if __name__ == "__main__":
    main()
