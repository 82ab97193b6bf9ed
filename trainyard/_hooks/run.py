"""The run from a script's view: its inputs, its reports, and when it should stop or save."""

import contextlib
import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trainyard._hooks.agreement import Agreement
from trainyard._hooks.halts import Halts
from trainyard._hooks.outputs import weight_files
from trainyard._hooks.stopping import StopCoordinator
from trainyard.protocol import checkpoint_manifest
from trainyard.protocol.messages import Progress, Result
from trainyard.protocol.numbers import whole
from trainyard.protocol.run_spec import RunSpec
from trainyard.protocol.session import Saved, Session


class Run:
    """One rank of a run. `hooks.init()` creates it; reports of ranks other than 0 are not shown, but for metrics
    of the first rank of a role, which appear as `ROLE/name`.
    """

    def __init__(self, session: Session, spec: RunSpec, agreement: Agreement | None) -> None:
        identity = session.identity
        self.hyperparameters: dict[str, Any] = dict(spec.hyperparameters)
        self.data_paths: list[str] = list(spec.data_paths)
        # As submitted: what a built-in trainer acts on by itself is the script's to follow.
        self.training_config: dict[str, Any] = dict(spec.training_config)
        self.data_config: dict[str, Any] = dict(spec.data_config)
        self.output_config: dict[str, Any] = dict(spec.output_config)
        self.model_path: str = spec.model_path
        self.output_dir: str = str(_made(identity.run_dir / "output"))
        self.rank = identity.rank
        self.world_size = identity.world_size
        self._session = session
        self._resume = spec.resume_checkpoint or None
        self._work = _made(identity.run_dir / "work")
        self._progress = Progress(step=spec.resume_step)
        self._last_step: int | None = spec.resume_step  # of metrics and checkpoints; None: the script reports progress
        self._metrics: dict[str, float] = {}
        self._answered_requests = 0
        self._rounds = itertools.count(1)
        self._declared = False
        self._agreement = agreement
        self._halts = Halts(spec.halts, start_step=spec.resume_step, ranks=self.world_size)
        self._stopping = StopCoordinator(session, agreement, self._halts)
        session.commands.watch(self._propagate_requests)

    @property
    def stop_reason(self) -> str | None:
        """Why `should_stop` returned True: pause, requeue, cancel or halt; None until then."""
        return self._stopping.reason

    @property
    def halts(self) -> tuple[int, ...]:
        """The steps that are still to come after which the run halts, by `training_config.halt_at` of its job.

        Measure what trials of a sweep are compared by at these steps, before `should_stop`.
        """
        return self._halts.ahead

    def log_metrics(self, values: Mapping[str, Any], *, step: int | None = None) -> None:
        """Record numbers (or what float() accepts) of one step; NaN is recorded as it is.

        Without `step` they belong to the step of the last `progress`. While a script never calls `progress`, the
        largest step of its metrics and checkpoints is the current step of its job. Never blocks.
        """
        numbers = {name: float(value) for name, value in values.items()}
        self._metrics.update(numbers)
        if step is not None:
            self._reached(whole("step", step))
            self._halts.reached(whole("step", step))
        self._session.metrics(self._progress.step if step is None else whole("step", step), numbers)

    def progress(
        self,
        step: int,
        total: int | None = None,
        *,
        epoch: float | None = None,
        total_epochs: float | None = None,
        tokens: int | None = None,
    ) -> None:
        """Report how many steps are finished, and of how many. Cheap enough for every step.

        Steps and tokens are whole numbers, 1e6 among them. Raises TypeError for others. Tokens are also the metric
        `tokens`, unless the script logs one: by them rungs and axes of curves are found.
        """
        self._last_step = None
        self._progress = Progress(
            step=whole("step", step),
            total_steps=None if total is None else whole("total", total),
            epoch=None if epoch is None else float(epoch),
            total_epochs=None if total_epochs is None else float(total_epochs),
            tokens=None if tokens is None else whole("tokens", tokens),
        )
        self._halts.reached(self._progress.step)
        self._session.progress(self._progress)

    def should_stop(self, *, step: int | None = None) -> bool:
        """Whether the script should save a checkpoint and end now, with exit code 0.

        Call it at every step boundary, equally often on every rank: all ranks then get True in the same call. It means
        pause, requeue, cancel or halt; `stop_reason` says which, and for a cancel a checkpoint is not needed. After a
        pause or a halt the script starts again with `resume_checkpoint()` naming its newest checkpoint; one that ends
        for a pause without saving resumes from the checkpoint before that.

        A pause or halt whose checkpoint cannot be saved is abandoned: what the block of `checkpoint` raises is printed
        and not propagated, the next call returns False, and the script should continue. So call it again after saving
        and before ending.

        `step` is how many steps are finished; a job that halts at steps needs it on several ranks. On one rank, it is
        by default the largest step of its progress, metrics and checkpoints. A script that would not halt exactly where
        its job says fails: at a halt it saves a checkpoint of that very step, and ends.
        """
        return self._stopping.due(None if step is None else whole("step", step))

    def should_checkpoint(self) -> bool:
        """Whether a checkpoint was requested without stopping; True once per request.

        Call it equally often on every rank, as with `should_stop`.
        """
        number = self._answered_requests + 1
        if self._agreement:
            due = self._agreement.due("checkpoint", number)
        else:
            due = self._session.commands.checkpoint_requests >= number
        self._answered_requests += due
        return due

    def resume_checkpoint(self) -> str | None:
        """Directory of the verified checkpoint to resume from; None for a fresh start. Read-only."""
        self._declare()
        return self._resume

    @contextlib.contextmanager
    def checkpoint(
        self, *, step: int, metrics: Mapping[str, Any] | None = None, all_ranks: bool = False
    ) -> Iterator[str]:
        """Provide an empty directory for a checkpoint; it is committed when the block ends.

        When the block raises, the checkpoint is discarded (and after a pause, see `should_stop`, the run continues).
        Rank 0 saves: on every other rank the directory is scratch and discarded, so that a script may use the block on
        all ranks or on rank 0 only. With `all_ranks=True` every rank must enter the block for this step, all get the
        same directory, each writes files of its own names, and rank 0 commits when all are done; if one of them raises,
        nothing is committed and rank 0 raises, too. That needs Trainyard as supervisor, and all ranks on one node.
        """
        if all_ranks and self.world_size > 1 and self._agreement is None:
            raise RuntimeError("checkpoint(all_ranks=True) on several ranks works in Trainyard only, and on one node")
        step = whole("step", step)
        self._stopping.saves(step)
        self._halts.reached(step)
        self._declare()
        together = all_ranks and self.world_size > 1
        directory = self._draft(step, together=together)
        numbers = {name: float(value) for name, value in (metrics or {}).items()}
        self._session.phase("CHECKPOINTING")
        try:
            with self._stopping.saving():
                try:
                    yield str(directory)
                except BaseException:
                    self._settle(step, together=together, outcome="failed")
                    raise
                if self._settle(step, together=together, outcome="written"):
                    saved = Saved(step=step, epoch=self._progress.epoch or 0.0, metrics=numbers)
                    self._session.commit_checkpoint(directory, saved)
                    self._stopping.saved(step)
                    self._reached(step)
        finally:
            if self.rank == 0 or not together:
                checkpoint_manifest.discard(directory)
            self._session.phase("TRAINING")

    @contextlib.contextmanager
    def section(self, name: str, *, max_seconds: float | None = None) -> Iterator[None]:
        """Announce work without steps that may take long, so that it is not treated as a hang.

        `max_seconds` is its time limit; default: the installation's TRAINYARD_WATCH_SECTION_SECONDS.
        """
        self._session.section(name, max_seconds=max_seconds)
        try:
            yield
        finally:
            self._session.section(None)

    def note(self, message: str, *, reason: str = "SCRIPT", **data: Any) -> None:
        """Add an entry to the job's history; `reason` in capitals identifies it for programs."""
        self._session.note(reason, message, data)

    def finish(self) -> None:
        """Report how the script ended. Called automatically when the script ends.

        Raises CheckpointNotSaved when it ended for a stop whose checkpoint was lost, and HaltMissed when it did not
        stop where its job halts.
        """
        self._stopping.check()
        if self._agreement:
            self._agreement.leave()
        weights = () if self.stop_reason else tuple(weight_files(self.output_dir))
        step = self._progress.step if self._last_step is None else self._last_step
        self._session.finish(
            Result(
                stopped=self.stop_reason,
                step=step if self._stopping.halt is None else self._stopping.halt,
                tokens=self._progress.tokens or 0,
                final_metrics=self._metrics,
                output=self.output_dir if weights else "",
                weight_files=weights,
            )
        )

    def fail(self, error_type: str, message: str, stack: str) -> None:
        """Report why the script failed. Called automatically when the script raises."""
        self._session.fail(error_type, message, stack)

    def _reached(self, step: int) -> None:
        if self._last_step is not None:
            self._last_step = max(self._last_step, step)

    def _draft(self, step: int, *, together: bool) -> Path:
        """A new empty directory; the same on all ranks when they write together."""
        writer = "all" if together else f"rank-{self.rank}"
        path = self._work / f"checkpoint-{step}-{writer}.tmp"
        if not together:
            checkpoint_manifest.discard(path)
        return _made(path)

    def _settle(self, step: int, *, together: bool, outcome: str) -> bool:
        """Whether this rank now has a complete checkpoint to commit."""
        if not together:
            return self.rank == 0 and outcome == "written"
        if self._agreement is None:
            return False
        round_name = f"{step}-{next(self._rounds)}"
        self._agreement.contribute(round_name, outcome)
        if self.rank != 0 or outcome == "failed":
            return False
        outcomes = self._agreement.outcomes(round_name, self.world_size)
        if outcomes.count("written") < self.world_size:
            raise RuntimeError(f"checkpoint at step {step}: not every rank wrote its part")
        return True

    def _declare(self) -> None:
        if not self._declared:
            self._declared = True
            self._session.declare(can_checkpoint=True)

    def _propagate_requests(self) -> None:
        """Runs on the reader thread, so that a rank that is busy with its step still takes part."""
        if self._agreement is None:
            return
        self._stopping.spread()
        for number in range(1, self._session.commands.checkpoint_requests + 1):
            self._agreement.propose("checkpoint", number)


def _made(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    return directory
