"""Several runs of built-in trainers in one group of processes: `python -m tests.trainers.exact_runs PLAN`.

What a run is stopped at and goes on from is in a plan; what came out of each is written beside it.
Loading torch once for all runs is what makes the tests of exact resumes cheap.
"""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainyard import _manifest
from trainyard._session import Identity, Progress, Result, Saved, manifest_for
from trainyard._wishes import Wishes
from workers.run_context import RunContext, RunSpec


class RecordingSession:
    """A session that remembers what it is told and wishes for a pause at a given step, on rank 0 only."""

    def __init__(self, identity: Identity, stop_at: int | None) -> None:
        self.identity = identity
        self.wishes = Wishes()
        self.values: dict[str, dict[int, float]] = {}
        self.phases: list[str] = []
        self.checkpoints: list[str] = []
        self._stop_at = stop_at

    def declare(self, *, can_checkpoint: bool) -> None:
        """Nobody asks."""

    def phase(self, name: str) -> None:
        self.phases.append(name)

    def progress(self, progress: Progress) -> None:
        if self.identity.rank == 0 and progress.step == self._stop_at:
            self.wishes.receive({"type": "pause"})

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self.values.setdefault(name, {})[step] = value

    def commit_checkpoint(self, tmp_dir: Path, saved: Saved) -> str:
        directory = self.identity.run_dir / "checkpoints" / f"step-{saved.step}"
        directory.parent.mkdir(exist_ok=True)
        _manifest.commit(tmp_dir, directory, manifest_for(self.identity, saved))
        self.checkpoints.append(str(directory))
        return str(directory)

    def finish(self, result: Result) -> None:
        """The outcome has it."""

    def fail(self, error_type: str, message: str, stack: str) -> None:
        """It is raised here."""


def run(plan: Mapping[str, Any]) -> dict[str, Any]:
    """One run; errors are part of the outcome."""
    # Only now, so that importing this module for its session is cheap.
    from workers.trainers import failures, registry  # noqa: PLC0415

    spec = RunSpec.from_document(plan["spec"])
    spec.run_dir.mkdir(parents=True, exist_ok=True)
    identity = Identity(run_dir=spec.run_dir, rank=int(os.environ.get("RANK", "0")), world_size=spec.world_size)
    session = RecordingSession(identity, plan.get("stop_at"))
    outcome: dict[str, Any] = {"error": None}
    context = RunContext(spec, session)
    try:
        result = registry.load(spec.framework, spec.training_type)(context).run()
        context.finish(result)
        outcome |= {"result": vars(result)}
    except Exception as error:
        if spec.world_size > 1:
            raise
        context.fail(failures.error_type(error), str(error), "")
        outcome |= {"error": f"{failures.error_type(error)}: {error}"}
    return outcome | {"values": session.values, "phases": session.phases, "checkpoints": session.checkpoints}


def main() -> None:
    """Make every run of the plan; `resume_from` names an earlier one, whose newest checkpoint is gone on from."""
    from workers.trainers import distributed  # noqa: PLC0415

    path = Path(sys.argv[1])
    plans: dict[str, Any] = json.loads(path.read_text())
    rank = int(os.environ.get("RANK", "0"))
    distributed.join(RunSpec.from_document(next(iter(plans.values()))["spec"]))
    outcomes: dict[str, Any] = {}
    for name, plan in plans.items():
        if earlier := plan.get("resume_from"):
            directory = Path(plans[earlier]["spec"]["run_dir"]) / "checkpoints" / f"step-{plans[earlier]['stop_at']}"
            plan["spec"]["resume_checkpoint"] = str(directory)
        outcomes[name] = run(plan)
        distributed.wait_for_all()
    if rank == 0:
        path.with_suffix(".outcomes").write_text(json.dumps(outcomes))
    distributed.leave()
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
