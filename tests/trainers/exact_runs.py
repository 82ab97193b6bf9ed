"""Several runs of built-in trainers in one group of processes: `python -m tests.trainers.exact_runs PLAN`.

A plan says where each run stops and what it resumes from; the outcome of each is written beside it.
Loading torch once for all runs keeps the tests of exact resumes cheap.
"""

import errno
import json
import os
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from tests.trainers.step_hooks import (
    command_in_evaluation,
    command_within,
    limited_memory,
    no_memory_for_copies,
    recorded_parts,
    recorded_reference,
    recorded_rows,
    recorded_shards,
    saved_by_transformers,
    slow_passes,
    slow_shards,
    slow_writing,
    uneven_completions,
    unwritten_shards,
    variables,
)
from trainyard.protocol import checkpoint_manifest
from trainyard.protocol.commands import CheckpointNotSaved, ModelAnswered, ReceivedCommands, parse
from trainyard.protocol.messages import FetchAdapter, Progress, Result
from trainyard.protocol.session import Identity, Saved, manifest_for
from workers.rank.run_context import RunContext, RunSpec, method_of
from workers.trainers.hidden_packages import leave_out


class RecordingSession:
    """A session that records reports and issues commands at given steps, on rank 0 only.

    From a plan: `stop_at`, a step to pause at, unless it has `pause_within`, `pause_in_evaluation` or
    `commands_before_completions`;
    `commands`, others by step; `unwritten` and `unstored`, the steps whose checkpoints fail while the rank writes or
    the platform stores them; `unwritten_shards`, those of which the last rank can't write its part.
    """

    def __init__(self, identity: Identity, plan: Mapping[str, Any]) -> None:
        self.identity = identity
        self.commands = ReceivedCommands()
        self.values: dict[str, dict[int, float]] = {}
        self.progress_made: list[tuple[int, int | None]] = []  # step, of how many
        self.phases: list[str] = []
        self.checkpoints: list[str] = []
        self.notes: list[dict[str, Any]] = []
        self.pauses_failed: list[str] = []
        self._at = {int(step): command for step, command in plan.get("commands", {}).items()}
        elsewhere = ("pause_within", "pause_in_evaluation", "commands_before_completions")
        if plan.get("stop_at") is not None and not any(map(plan.get, elsewhere)):
            self._at[plan["stop_at"]] = {"type": "pause"}
        self._unwritten: list[int] = plan.get("unwritten", [])
        self._unstored: list[int] = plan.get("unstored", [])
        self._offered = 0
        self.reached = 0
        self.reached_when_saved: dict[int, int] = {}  # step of a checkpoint → step of the run when it was complete

    def declare(self, *, can_checkpoint: bool) -> None:
        """Ignored: no test reads it."""

    def phase(self, name: str) -> None:
        self.phases.append(name)

    def progress(self, progress: Progress) -> None:
        self.reached = progress.step
        self.progress_made.append((progress.step, progress.total_steps))
        if self.identity.rank == 0 and progress.step in self._at:
            self.commands.apply(parse(self._at.pop(progress.step)))

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self.values.setdefault(name, {})[step] = value

    def note(self, reason: str, message: str, data: Mapping[str, Any]) -> None:
        self.notes.append({"reason": reason, "message": message, "data": dict(data)})

    def section(self, name: str | None, *, max_seconds: float | None = None) -> None:
        """Ignored: no watchdog runs."""

    def commit_checkpoint(self, tmp_dir: Path, saved: Saved) -> str:
        if saved.step in self._unwritten:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        directory = self.identity.run_dir / "checkpoints" / f"step-{saved.step}"
        directory.parent.mkdir(exist_ok=True)
        checkpoint_manifest.commit(tmp_dir, directory, manifest_for(self.identity, saved))
        self.checkpoints.append(str(directory))
        self._offered = saved.step
        self.reached_when_saved[saved.step] = self.reached
        return str(directory)

    def wait_stored(self) -> None:
        if self._offered in self._unstored:
            raise CheckpointNotSaved("the storage is away")

    def fetch_adapter(self, request: FetchAdapter) -> str:
        raise NotImplementedError

    def ask_model(self, path: str, body: str) -> ModelAnswered | None:
        raise NotImplementedError

    def pause_failed(self, number: int, message: str) -> None:
        self.pauses_failed.append(message)

    def finish(self, result: Result) -> None:
        """The outcome has it."""

    def fail(self, error_type: str, message: str, stack: str) -> None:
        """It is raised here."""


# Of a plan → what writes down what happens, and the file it writes for each rank.
_RECORDERS = {
    "records_rows": (recorded_rows, "rows-{}.jsonl"),
    "records_parts": (recorded_parts, "parts-{}.json"),
    "records_shards": (recorded_shards, "shards-{}.json"),
    "records_reference": (recorded_reference, "reference-{}.json"),
    "uneven_completions": (uneven_completions, "completions-{}.json"),
}
# Of a plan → what makes checkpoints slow.
_SLOW = {"no_memory_for_copies": no_memory_for_copies, "slow_shards": slow_shards, "slow_writing": slow_writing}


def run(plan: Mapping[str, Any]) -> dict[str, Any]:
    """One run; errors are part of the outcome, of several ranks only where a plan says that it `fails` on all of them.

    `trainer` of a plan is the line of the registry, which may lack it.
    """
    # Only now, so that importing this module for its session is cheap.
    from workers.trainers import failures, registry  # noqa: PLC0415

    started = time.monotonic()
    spec = RunSpec.from_document(plan["spec"])
    if trainer := plan.get("trainer"):
        registry.TRAINERS[spec.framework, method_of(spec)] = trainer
    spec.run_dir.mkdir(parents=True, exist_ok=True)
    identity = Identity(run_dir=spec.run_dir, rank=int(os.environ.get("RANK", "0")), world_size=spec.world_size)
    session = RecordingSession(identity, plan)
    outcome: dict[str, Any] = {"error": None}
    context = RunContext(spec, session)
    with ExitStack() as hooks:
        _interfere(hooks, plan, session)
        try:
            result = registry.load(spec.framework, method_of(spec))(context).run()
            context.finish(result)
            outcome |= {"result": vars(result)}
        except Exception as error:
            if spec.world_size > 1 and not plan.get("fails"):
                raise
            context.fail(failures.error_type(error), str(error), "")
            outcome |= {"error": f"{failures.error_type(error)}: {error}"}
    recorded = ("values", "progress_made", "phases", "checkpoints", "notes", "pauses_failed", "reached_when_saved")
    return outcome | {name: getattr(session, name) for name in recorded} | {"seconds": time.monotonic() - started}


def _interfere(hooks: ExitStack, plan: Mapping[str, Any], session: RecordingSession) -> None:
    """Enter what the plan puts into this training."""
    identity = session.identity
    for name, (hook, file) in _RECORDERS.items():
        if plan.get(name):
            hooks.enter_context(hook(identity.run_dir / file.format(identity.rank)))
    if limit := plan.get("largest_batch"):
        hooks.enter_context(limited_memory(limit))
    for name, slow in _SLOW.items():
        if plan.get(name):
            hooks.enter_context(slow())
    hooks.enter_context(variables(plan.get("environment", {})))
    if plan.get("slow_rank") == identity.rank:
        hooks.enter_context(slow_passes(plan["slow_seconds"]))
    if (steps := plan.get("unwritten_shards")) and identity.rank == identity.world_size - 1:
        hooks.enter_context(unwritten_shards(steps))
    _interrupt(hooks, plan, session)
    if plan.get("saves_twice"):
        hooks.enter_context(saved_by_transformers(identity.run_dir / "transformers"))


def _interrupt(hooks: ExitStack, plan: Mapping[str, Any], session: RecordingSession) -> None:
    """Enter what issues commands in the middle of a step."""
    if (step := plan.get("pause_within")) and session.identity.rank == 0:
        hooks.enter_context(command_within(step, lambda: session.commands.apply(parse({"type": "pause"}))))
    if plan.get("pause_in_evaluation"):
        hooks.enter_context(command_in_evaluation(lambda: session.commands.apply(parse({"type": "pause"}))))
    for step, command in plan.get("commands_before_completions", {}).items():
        hooks.enter_context(command_within(int(step), partial(session.commands.apply, parse(command)), before_pass=1))


def main() -> None:
    """Make every run of the plan; `resume_from` names an earlier one, whose newest checkpoint is gone on from."""
    from workers.trainers import distributed  # noqa: PLC0415

    path = Path(sys.argv[1])
    plans: dict[str, Any] = json.loads(path.read_text())
    rank = int(os.environ.get("RANK", "0"))
    specs = [plan["spec"] for plan in plans.values()]
    leave_out({spec["framework"] for spec in specs}, {spec["training_type"] for spec in specs})
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
