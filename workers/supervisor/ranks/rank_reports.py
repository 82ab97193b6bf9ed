"""Passes rank 0's phases, progress and metrics on to database and TensorBoard, other roles' metrics to the database."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from app.domain.lifecycle.events import EventType
from app.domain.lifecycle.states import JobState
from app.domain.metric_groups import node_metric
from app.services.telemetry.stored_metrics import MetricValue
from config.redaction import Redaction
from trainyard.protocol import messages
from workers.supervisor.ranks.eta import Eta
from workers.supervisor.ranks.progress_watchdog import ProgressWatchdog
from workers.supervisor.ranks.usage import GPU_UTILIZATION
from workers.supervisor.recording.metric_buffer import MAX_NAMES, MetricNames
from workers.supervisor.recording.rate_limit import TokenBucket
from workers.supervisor.recording.report_writer import Note, PhaseChange, Reporter, SavesOnRequest
from workers.supervisor.recording.tensorboard_store import TensorboardStore

# Each remark is a line in the job's history; a rank may send thousands a second.
REMARK_BURST = 20
REMARK_SECONDS = 30.0
MAX_ROLE_NAMES = 200  # of metrics of all other roles on this node; they must not crowd out rank 0's
CHECKPOINT_FAILED = "CHECKPOINT_FAILED"
TOKENS = "tokens"


class RankReports:
    """All methods belong to the loop's thread."""

    def __init__(
        self,
        reporter: Reporter,
        events: TensorboardStore,
        steps: ProgressWatchdog,
        *,
        part: int = 0,
        working: JobState = JobState.TRAINING,
        on_training: Callable[[], None] = lambda: None,
        on_serving: Callable[[], None] = lambda: None,
    ) -> None:
        """``part`` is that of a gang, ``working`` the phase in which they make steps. ``on_training`` is called once,
        when they have read their data, ``on_serving`` when a replica's engine listens: the job's phase changes once it
        has answered.
        """
        self.steps = steps
        self._part = part
        self.working = working
        self._on_training = on_training
        self._on_serving = on_serving
        self._reporter = reporter
        self._events = events
        self._phase: JobState | None = None
        self._start_step = 0
        self._eta = Eta()
        self._last_progress: messages.Progress | None = None
        self._follows = False
        self._names, self._role_names = MetricNames(), MetricNames()
        self._remarks = TokenBucket(REMARK_BURST, REMARK_SECONDS)
        self.last_step = 0
        self.job_step = 0  # as the first part has reported it
        self.final_metrics: dict[str, float] = {}

    def start_from(self, step: int, names: Sequence[str], redaction: Redaction, *, custom: bool = False) -> None:
        """``names`` of metrics are those of earlier attempts; ``custom``: the ranks run a script of the user's."""
        self._follows = custom
        self.steps.begin(time.monotonic())
        self._start_step = self.last_step = step
        self._names = MetricNames(names, redaction=redaction)
        self._role_names = MetricNames(limit=MAX_ROLE_NAMES, redaction=redaction)
        self._events.start_from(step)

    @property
    def start_step(self) -> int:
        return self._start_step

    def enter(self, phase: JobState) -> None:
        """Move the job to a phase, through the one in which its ranks work if it was not there yet."""
        if self.working is JobState.SERVING:
            return
        if phase is JobState.SERVING or (phase is not JobState.EXPORTING and self.working is JobState.EVALUATING):
            phase = self.working  # what does not train has no other
        if self._phase is None and phase is not self.working:
            self.enter(self.working)
        if self._phase is None:
            self._on_training()
        if phase is not self._phase:
            self._phase = phase
            self._reporter.add(PhaseChange(to=phase, start_step=self._start_step))

    def _enter_reported(self, phase: JobState) -> None:
        if phase is JobState.SERVING and phase is self.working and self._phase is None:
            self._phase = phase
            self._on_serving()
        self.enter(phase)

    def saves_on_request(self, *, can: bool) -> None:
        """Record whether the script saves on request."""
        self._reporter.add(SavesOnRequest(can))

    def take(self, report: messages.Report) -> None:
        """Pass on a report of rank 0; other messages are ignored."""
        now = time.monotonic()
        if isinstance(report, messages.Phase):
            self.steps.phase(report.phase, now)
            self._eta.phase(report.phase, now, works=report.phase == self.working)
            self._enter_reported(JobState(report.phase))
        elif isinstance(report, messages.Progress):
            self.steps.step_made(report.step, now, tokens=report.tokens or 0)
            self._progress(report, now)
        elif isinstance(report, messages.MetricPoint):
            self.steps.values_of(report.step, now)
            self._metrics(report)
            self.reached(report.step)
        elif isinstance(report, messages.SectionMessage):
            self.steps.section(report.name, report.max_seconds, now)
        elif isinstance(report, messages.Remark):
            self._remark(report)

    def overhear(self, report: messages.Progress | messages.MetricPoint) -> None:
        """Pass on values found in a script's output. They do not feed the watchdog: a script may stop printing them."""
        if isinstance(report, messages.Progress):
            self._progress(report, time.monotonic())
        else:
            self._metrics(report)

    def metrics_of_role(self, role: str, report: messages.MetricPoint) -> None:
        """Store values of the first rank of another role, by their own steps; they show no progress of the job.

        Where rank 0 is on the same node, its metrics of the same name have precedence. TensorBoard shows rank 0's
        alone: its file has one writer.
        """
        named = {f"{role}/{name}": value for name, value in report.values.items()}
        was_full = self._role_names.overflowed
        values = self._role_names.admit({n: value for n, value in named.items() if n not in self.final_metrics})
        self._store(report.step, report.at, values)
        if self._role_names.overflowed and not was_full:
            self._warn_of_names(f"metrics of roles beyond the first {MAX_ROLE_NAMES} names of a node are not kept")

    def reached(self, step: int) -> None:
        """A script that reports no progress is at the step of its newest metrics or checkpoint.

        That feeds neither the watchdog nor the estimate of its end: it may report them as irregularly as it likes.
        """
        if self._follows and self._last_progress is None and step > self.last_step:
            self.last_step = step
            self._reporter.progress(messages.Progress(step=step))

    def _progress(self, report: messages.Progress, now: float) -> None:
        self.enter(self._phase or self.working)
        self.last_step = report.step
        self._last_progress = report
        self._eta.progress(report.step, now)
        self._reporter.progress(report, eta_seconds=self._eta.seconds(report.total_steps))
        # Rungs and curves by tokens read the metric, which built-in trainers report themselves.
        if self._follows and report.tokens and TOKENS not in self.final_metrics:
            self._pass_on(report.step, datetime.now(UTC), self._names.admit({TOKENS: float(report.tokens)}))

    def _metrics(self, report: messages.MetricPoint) -> None:
        self.enter(self._phase or self.working)
        was_full = self._names.overflowed
        values = self._names.admit(report.values)
        self.final_metrics.update(values)
        self._pass_on(report.step, report.at, values)
        if self._names.overflowed and not was_full:
            self._warn_of_names(f"metrics beyond the first {MAX_NAMES} names are not kept")

    def _warn_of_names(self, message: str) -> None:
        self._reporter.add(Note(kind=EventType.WARNING, reason="TOO_MANY_METRICS", message=message))

    def _remark(self, report: messages.Remark) -> None:
        """Add a line to the job's history, up to a rate limit."""
        if self._remarks.take():
            kind = EventType.CHECKPOINT_FAILED if report.reason == CHECKPOINT_FAILED else EventType.WARNING
            data = {"step": self.last_step, **report.data}
            self._reporter.add(Note(kind=kind, reason=report.reason, message=report.message, data=data))

    def usage(self, values: Mapping[str, float]) -> None:
        """Report samples as metrics of the current step; a script's own metric of the same name has precedence.

        Those of other nodes than rank 0's have names of their own, and are not in TensorBoard's file, which has one
        writer.
        """
        if self._part:
            of_node = {node_metric(self._part, name): value for name, value in values.items()}
            self._store(self.job_step, datetime.now(UTC), of_node)
            return
        free = {name: value for name, value in values.items() if name not in self.final_metrics}
        self._pass_on(self.last_step, datetime.now(UTC), self._names.admit(free))
        if GPU_UTILIZATION in values:
            self._reporter.gpu_sample(values[GPU_UTILIZATION])

    def masked(self, values: Mapping[str, float]) -> dict[str, float]:
        """The same values, with secrets masked in their names."""
        return self._names.masked(values)

    def end(self, result: messages.Result) -> None:
        """Set the final progress from the result."""
        step = self.last_step if result.step is None else result.step
        last = self._last_progress or messages.Progress(step=step)
        total, tokens = max(step, last.total_steps or 0) or None, result.tokens or last.tokens
        self._reporter.progress(replace(last, step=step, total_steps=total, tokens=tokens))

    def _pass_on(self, step: int, at: datetime, values: Mapping[str, float]) -> None:
        self._store(step, at, values)
        self._events.add(step, at, values)

    def _store(self, step: int, at: datetime, values: Mapping[str, float]) -> None:
        self._reporter.points([MetricValue(name=n, step=step, at=at, value=v) for n, v in values.items()])
