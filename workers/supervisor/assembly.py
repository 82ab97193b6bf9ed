"""Builds the parts of a supervisor in one place; a test overrides the methods of the parts that it replaces."""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from app.database.engine import Database
from app.domain.lifecycle.events import EventType
from app.domain.spec.hyperparameters import parsing
from app.services.attempts import artifacts, leases
from app.services.attempts.leases import ControlRequests
from app.services.attempts.work_orders import WorkOrder
from app.storage.storage import Storage
from config.redaction import Redaction
from config.settings import Settings
from trainyard.protocol.commands import AdapterAnswer, Answer
from workers.attempt_failed import AttemptFailed
from workers.egress.gate_process import GateProcess
from workers.prepare.prepare import PreparedAttempt, prepare
from workers.run_dir.layout import run_directory
from workers.run_dir.process_registry import ProcessRegistry, held_here
from workers.run_dir.sizes import RESUME
from workers.supervisor.confined_tracker import confined_child
from workers.supervisor.control.lease_fence import Fence
from workers.supervisor.control.lease_renewal import LeaseRenewal
from workers.supervisor.control.rank_group import RankGroup
from workers.supervisor.control.stop_controller import StopController
from workers.supervisor.interactive.sandbox_access import AccessCalls, SandboxAccess
from workers.supervisor.interactive.setup import notebook_settings, session_place
from workers.supervisor.model_requests.rank_requests import RankRequests
from workers.supervisor.model_requests.setup import model_requests, refuse_without_gateway
from workers.supervisor.ranks.event_loop import EventLoop
from workers.supervisor.ranks.observations import Observations
from workers.supervisor.ranks.progress_watchdog import ProgressWatchdog
from workers.supervisor.ranks.rank_logs import RankLogs
from workers.supervisor.ranks.rank_reports import RankReports
from workers.supervisor.ranks.role_progress import RoleProgress
from workers.supervisor.ranks.usage import OTHER_NODE_SECONDS, SAMPLE_SECONDS, UsageSampler
from workers.supervisor.recording.checkpoint_store import CheckpointStore
from workers.supervisor.recording.claim_sizes import limits_of_claims, limits_of_empty
from workers.supervisor.recording.connection_events import connection_event
from workers.supervisor.recording.context import AttemptContext
from workers.supervisor.recording.disk_space import DiskSpaceWatch
from workers.supervisor.recording.log_store import LogStore
from workers.supervisor.recording.recorders import Recorders
from workers.supervisor.recording.report_writer import Note, Reporter
from workers.supervisor.recording.run_size import SHARE, RunSizeWatch
from workers.supervisor.recording.tensorboard_store import TensorboardStore
from workers.supervisor.rendezvous.meeting import meet
from workers.supervisor.serving.adapters import Adapters
from workers.supervisor.serving.replica import ReplicaCalls, ServedReplica
from workers.supervisor.serving.setup import relay_place
from workers.tracking.trackers import Trackers

TRACKING = "TRACKING"  # reason of events about tracking services


class Assembly:
    """The parts of one attempt's supervisor. The constructor makes the run directory; raises OSError.

    ``metric_names`` are those of earlier attempts, ``checkpoints_asked`` the requests for a checkpoint that were
    passed on before; None: those read first are old.
    """

    def __init__(
        self,
        settings: Settings,
        db: Database,
        work: WorkOrder,
        began: float,
        *,
        redaction: Redaction | None = None,
        metric_names: Sequence[str] = (),
        checkpoints_asked: int | None = None,
    ) -> None:
        self.settings, self.db, self.work, self.began = settings, db, work, began
        self.metric_names, self.checkpoints_asked = metric_names, checkpoints_asked
        self.loop = EventLoop()
        run = run_directory(settings.data.dir, work.job_id, work.attempt, work.part)
        run.make()
        self.context = AttemptContext(
            db=db, storage=Storage(settings.storage.url), work=work, run=run, redaction=redaction or Redaction()
        )
        self.observations = Observations(
            custom=work.framework == parsing.CUSTOM,
            saved_before=work.saves_on_request,
            halts=work.document.training_config.halt_at,
            time_limit_seconds=work.max_runtime_seconds,
            can_save=work.is_training,
            serves=work.is_replica,
        )
        self.processes = ProcessRegistry(run, held_here(work))

    def prepare(self, recorders: Recorders, *, is_over: Callable[[], bool]) -> PreparedAttempt | None:
        """Everything the ranks need; None when the attempt is over before. Raises AttemptFailed and LeaseLost."""
        refuse_without_gateway(self.settings, self.work)
        context = self.context
        alone = prepare(self.settings, self.db, context.storage, self.work, context.run, context.redaction)

        def warn(message: str) -> None:
            recorders.reporter.add(Note(kind=EventType.WARNING, message=message))

        return meet(self.settings, self.db, self.work, alone, is_over=is_over, warn=warn)

    def renewal(
        self, *, on_requests: Callable[[ControlRequests], None], on_lost: Callable[[str], None]
    ) -> LeaseRenewal:
        db, work = self.db, self.work

        def renew() -> ControlRequests:
            ran_seconds = round(time.monotonic() - self.began, 3)
            return leases.renew(db, lease_id=work.lease_id, fence=work.fence, ran_seconds=ran_seconds)

        return LeaseRenewal(self.settings.lease, Fence(), renew, on_requests=on_requests, on_lost=on_lost)

    def size_watches(self, prepared: PreparedAttempt, on_exceeded: Callable[[str], None]) -> list[RunSizeWatch]:
        """Of the run directory, claims and empty directories that have limits; ``on_exceeded`` gets what was found, in
        words.
        """
        resources, node = self.work.document.resource_config, self.settings.node

        def watch(
            directory: Path, limit_mb: int, whose: str, where: str, besides: str = "", share: float = SHARE
        ) -> RunSizeWatch:
            def exceeded(found: int) -> None:
                on_exceeded(f"{whose} at least {found} MB, {limit_mb} MB are allowed ({where})")

            return RunSizeWatch(directory, limit_mb, exceeded, besides=besides, share=share)

        where = "size_mb of its mount, or the node's TRAINYARD_NODE_MAX_CLAIM_MB"
        claims = limits_of_claims(prepared.plan.confinement.view, resources.mounts, node.max_claim_mb)
        empty = limits_of_empty(prepared.plan.confinement.view, resources.mounts)
        part = SHARE / max(1, len(claims) + len(empty))  # all mounts together take as long as the job's own files
        watches = [
            watch(claim, mb, f"the volume claim {claim.name} holds", where, share=part) for claim, mb in claims.items()
        ]
        for target, (directory, mb) in empty.items():
            watches.append(
                watch(directory, mb, f"the empty directory {target} holds", "size_mb of its mount", share=part)
            )
        if limit := resources.limits.storage_mb or node.max_storage_mb:
            where = "resource_config.limits.storage_mb, else the node's TRAINYARD_NODE_MAX_STORAGE_MB"
            run = self.context.run.path
            watches.append(watch(run, limit, "the job's files on its node take", where, besides=RESUME))
        return watches

    def disk_watch(self, *, on_waiting: Callable[[str], None], on_over: Callable[[str], None]) -> DiskSpaceWatch:
        return DiskSpaceWatch(
            self.settings.watch.disk_full_seconds,
            hurries=lambda: self.observations.stopping is not None,
            on_waiting=on_waiting,
            on_over=on_over,
        )

    def recorders(
        self, disk: DiskSpaceWatch, *, answer: Callable[[Answer], None], on_lost: Callable[[str], None]
    ) -> Recorders:
        on, work = self.context, self.work
        reporter = Reporter(on.db, work, on_lost, on.redaction)
        logs = LogStore(on.storage, work.job_id, work.attempt, room=disk)
        events = TensorboardStore(
            on.storage,
            work.job_id,
            work.attempt,
            record=lambda new: artifacts.record(on.db, job_id=work.job_id, fence=work.fence, new=new),
        )
        checkpoints = CheckpointStore(on, reporter, logs, room=disk, answer=answer)
        return Recorders(reporter=reporter, logs=logs, events=events, checkpoints=checkpoints)

    def rank_group(
        self, recorders: Recorders, *, on_training: Callable[[], None], on_pause_failed: Callable[[str], None]
    ) -> RankGroup:
        work = self.work
        steps = ProgressWatchdog(self.settings.watch, custom=self.observations.custom, trains=work.is_training)
        replica = self.replica(recorders, lambda: ranks) if work.is_replica else None
        reports = RankReports(
            recorders.reporter,
            recorders.events,
            steps,
            part=work.part,
            working=work.working_phase,
            on_training=on_training,
            on_serving=replica.begin if replica is not None else lambda: None,
        )
        ranks = RankGroup(
            self.loop,
            self.context.run,
            self.observations,
            reports=reports,
            checkpoints=recorders.checkpoints,
            logs=RankLogs(self.loop, recorders.logs),
            on_pause_failed=on_pause_failed,
        )
        ranks.replica = replica
        ranks.access = self.access(recorders, lambda: ranks, steps.kept)
        ranks.model_requests = RankRequests(self.loop, steps, model_requests(self.settings, work))
        if work.all_instances:
            ranks.roles = self.roles(recorders, ranks)
        return ranks

    def roles(self, recorders: Recorders, ranks: RankGroup) -> RoleProgress:
        return RoleProgress(
            self.db,
            self.work,
            send=lambda message: self.loop.call(lambda: ranks.tell_agent(message)),
            note=recorders.reporter.add,
            on_restart=ranks.restarted,
            on_leader_left=ranks.reports.steps.left,
            grace_seconds=self.settings.lease.kill_grace_seconds,
        )

    def replica(self, recorders: Recorders, ranks: Callable[[], RankGroup]) -> ServedReplica:
        """``ranks`` gives the ranks that it belongs to, which are made after it."""
        on, seen = self.context, self.observations

        def end(failure: AttemptFailed) -> None:
            if not ranks().ended and seen.failure is None:
                seen.failure = failure
                ranks().terminate(self.settings.lease.kill_grace_seconds)

        def send(answer: AdapterAnswer) -> None:
            self.loop.call(lambda: ranks().answer_adapter(answer))

        return ServedReplica(
            on.db,
            self.work,
            seen,
            Adapters(on.db, on.storage, self.work, on.run, send),
            place=lambda: relay_place(self.settings, self.work, on.run),
            calls=ReplicaCalls(
                on_lost=recorders.reporter.lose, on_failed=lambda failure: self.loop.call(lambda: end(failure))
            ),
            stuck_seconds=self.settings.watch.step_seconds,
        )

    def access(
        self, recorders: Recorders, ranks: Callable[[], RankGroup], on_kept: Callable[[], None]
    ) -> SandboxAccess:
        """What opens the sandbox to people. ``ranks`` as of ``replica``."""
        return SandboxAccess(
            self.db,
            self.work,
            self.observations,
            AccessCalls(
                place=lambda: session_place(self.settings, self.work, self.context.run),
                tell_agent=lambda message: ranks().tell_agent(message),
                on_kept=on_kept,
                add=recorders.reporter.add,
                on_lost=recorders.reporter.lose,
            ),
            notebook=notebook_settings(self.settings, self.work),
        )

    def gate(self, recorders: Recorders) -> GateProcess:
        """The way out of the sandbox for jobs that ask for one; serves nothing for others."""
        return GateProcess(
            self.work.egress,
            self.settings.fetch.allow,
            on_note=lambda note: recorders.reporter.add(connection_event(note, self.context.redaction)),
        )

    def trackers(self, recorders: Recorders) -> Trackers:
        """The tracking services of the user's that the job names; serves nothing for others."""

        def warn(message: str, data: dict[str, object]) -> None:
            recorders.reporter.add(Note(kind=EventType.WARNING, reason=TRACKING, message=message, data=data))

        return Trackers(self.settings, self.db, self.work, warn, partial(confined_child, self.settings))

    def stop_controller(
        self, ranks: RankGroup, *, withdraw: Callable[[str, Callable[[], None]], None]
    ) -> StopController:
        return StopController(
            self.loop,
            self.observations,
            ranks,
            grace_seconds=self.settings.lease.kill_grace_seconds,
            withdraw=withdraw,
            checkpoints_asked=self.checkpoints_asked,
            follows=self.work.part > 0,
        )

    def usage_sampler(self, take: Callable[[Mapping[str, float]], None]) -> UsageSampler:
        return UsageSampler(self.work.devices, take, seconds=OTHER_NODE_SECONDS if self.work.part else SAMPLE_SECONDS)
