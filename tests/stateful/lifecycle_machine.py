"""The lifecycle as a Hypothesis state machine on a real store: random users, holders, faults and deliveries.

Verbs go through the HTTP API; planner, claims, holders and reaper through the services that the processes call. Time is
the reaper's own clock, which the machine advances. A holder is a supervisor with a claimed attempt: it may act, even
late or with a stale token, stop renewing for ever, or renew again.
"""

from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, rule
from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from app.domain.errors import TrainyardError
from app.domain.lifecycle.control_actions import SAVING
from app.domain.lifecycle.states import HELD, TERMINAL, JobState
from app.models import Attempt, Base, Checkpoint, Job, JobEvent, Lease, Node, Reservation
from app.services.attempts import failed_pauses, leases, work_orders
from app.services.attempts.lost_leases_and_nodes import Reaper
from app.services.attempts.work_orders import WorkOrder
from app.services.lifecycle import transitions
from app.services.scheduling import planner, preemption
from config.settings import load_settings
from tests.builders import factories
from tests.builders.walks import NO_WAIT, save
from tests.stateful.holders import Holder, Known, outcome_of, refused
from tests.systems.apps import Api

TICK_SECONDS = 4.0  # between two sweeps of the reaper; after a longer gap it counts anew
LEASE_LOOKS = 6  # enough of them for a silent lease to run out
ROUNDS_TO_THE_END = 60
STAYS = {"job", "project", "queue", "api_key", "alembic_version"}  # tables that are not emptied, or by hand


class LifecycleMachine(RuleBasedStateMachine):
    """Set ``api`` on a subclass; every example begins with an empty store."""

    api: ClassVar[Api]

    jobs = st.runner().flatmap(lambda machine: st.sampled_from(list(machine.known)))
    deliveries = Bundle("deliveries")  # (job, attempt, node) that were announced, also long ago
    holders = Bundle("holders")

    @initialize(target=holders)
    def begin_anew(self) -> Holder:
        """An empty store, then a job that is worked on already and one that waits."""
        self.db = self.api.db
        with self.db.write() as session:
            for table in reversed(Base.metadata.sorted_tables):
                if table.name not in STAYS:
                    session.execute(table.delete())
            session.execute(Base.metadata.tables["job"].delete())
            for name in ("n1", "n2"):
                factories.make_node(session, name, devices=1)
        self.known: dict[str, Known] = {}
        self.now = 100.0
        self.reaper = self._new_reaper()
        for _ in range(2):
            self.submit("terminate", admitted=True)
        return self._start()[0]

    # ---- what people do

    @rule(on_preemption=st.sampled_from(["terminate", "requeue"]), admitted=st.booleans())
    def submit(self, on_preemption: str, *, admitted: bool) -> None:
        job_id = self.api.submit(scheduling_config={"on_preemption": on_preemption})
        self.known[job_id] = Known()
        if admitted:
            self.admit(job_id)

    @rule(job_id=jobs)
    def admit(self, job_id: str) -> None:
        with self.db.write() as session:
            job = transitions.load_for_change(session, job_id)
            if job.state is JobState.PENDING:
                transitions.transition(session, job, JobState.QUEUED, actor="coordinator")

    @rule(job_id=jobs)
    def cancel(self, job_id: str) -> None:
        before = self._job(job_id)
        answer = self.api.post(f"/v1/jobs/{job_id}/cancel")
        ended_otherwise = before.state in TERMINAL and before.state is not JobState.CANCELLED
        assert answer.status_code == (409 if ended_otherwise else 200), (
            f"cancel of {before.status} was answered wrongly"
        )
        if not ended_otherwise:
            self.known[job_id].cancelled_at_attempt = self._job(job_id).attempt

    @rule(job_id=jobs, saves=st.booleans(), force=st.booleans())
    def pause(self, job_id: str, *, saves: bool, force: bool) -> None:
        before = self._job(job_id)
        answer = self.api.post(f"/v1/jobs/{job_id}/pause", {"save_checkpoint": saves, "force": force})
        refused = before.state in TERMINAL or before.state is JobState.EXPORTING or before.requested == "cancel"
        assert answer.status_code == (409 if refused else 202)
        after = self._job(job_id)
        if not refused:
            assert after.state is JobState.PAUSED or after.requested == "pause"

    @rule(job_id=jobs)
    def resume(self, job_id: str) -> None:
        was_paused = self._job(job_id).state is JobState.PAUSED
        answer = self.api.post(f"/v1/jobs/{job_id}/resume")
        assert answer.status_code == (202 if was_paused else 409)
        if was_paused:
            assert self._job(job_id).state is JobState.QUEUED

    @rule(job_id=jobs)
    def retry(self, job_id: str) -> None:
        has_ended = self._job(job_id).state in TERMINAL
        answer = self.api.post(f"/v1/jobs/{job_id}/retry")
        if not has_ended:
            assert answer.status_code == 409
            return
        child = self.api.data(answer, 201)["job_id"]
        self.known[child] = Known(saved_step=0)
        assert self._job(child).parent_job_id == job_id

    @rule(job_id=jobs)
    def save_now(self, job_id: str) -> None:
        before = self._job(job_id)
        answer = self.api.post(f"/v1/jobs/{job_id}/checkpoint")
        can = before.state in SAVING and before.requested is None
        assert answer.status_code == (202 if can else 409)

    @rule(job_id=jobs)
    def preempt(self, job_id: str) -> None:
        can = self._job(job_id).state in preemption.PREEMPTIBLE
        with self.db.write() as session:
            try:
                preemption.request_preemption(session, job_id, actor="planner", reason="a more urgent job")
            except TrainyardError:
                assert not can
            else:
                assert can

    # ---- what the coordinator does

    @rule(target=deliveries)
    def plan(self) -> Any:
        placed = planner.plan_once(self.db)
        return multiple(*((d.job_id, d.attempt, d.node) for d in placed))

    @rule(looks=st.integers(min_value=1, max_value=LEASE_LOOKS))
    def time_passes(self, looks: int) -> None:
        self._let_time_pass(looks, renewing=0)

    @rule()
    def another_coordinator(self) -> None:
        """The previous one was killed: since when a counter has not moved is forgotten."""
        self.reaper = self._new_reaper()

    # ---- what nodes and supervisors do

    @rule(target=holders)
    def start(self) -> Any:
        """What is placed is taken up at once."""
        return multiple(*self._start())

    @rule(target=holders, delivery=deliveries, node=st.sampled_from(["n1", "n2"]))
    def claim(self, delivery: tuple[str, int, str], node: str) -> Any:
        """A delivery may come twice, late, and to the wrong node."""
        job_id, attempt, _ = delivery
        claimed = leases.claim(self.db, job_id=job_id, attempt=attempt, node=node, boot_id="boot")
        if claimed is None:
            return multiple()
        assert node == delivery[2]
        return self._hold(work_orders.load_work(self.db, job_id, attempt), node)

    @rule(holder=holders, looks=st.integers(min_value=0, max_value=LEASE_LOOKS))
    def fall_silent(self, holder: Holder, looks: int) -> None:
        holder.silent = True
        self._let_time_pass(looks, renewing=0)

    @rule(holder=holders, steps=st.integers(min_value=1, max_value=5))
    def train_and_save(self, holder: Holder, steps: int) -> None:
        if not self._may_write(holder):
            assert refused(lambda: work_orders.enter_phase(self.db, holder.work, JobState.TRAINING))
            assert refused(lambda: save(self.db, holder.work, holder.step + steps)), "a stale holder saved"
            return
        if self._job(holder.work.job_id).state is JobState.EXPORTING:
            return  # its training is over
        work_orders.enter_phase(self.db, holder.work, JobState.TRAINING, start_step=holder.step)
        holder.step += steps
        save(self.db, holder.work, holder.step)
        known = self.known[holder.work.job_id]
        known.saved_step = max(known.saved_step, holder.step)

    @rule(holder=holders, phase=st.sampled_from(["CHECKPOINTING", "EVALUATING", "EXPORTING"]))
    def enter_phase(self, holder: Holder, phase: str) -> None:
        job = self._job(holder.work.job_id)
        if not self._may_write(holder):
            assert refused(lambda: work_orders.enter_phase(self.db, holder.work, JobState(phase)))
        elif job.state in (JobState.TRAINING, JobState.CHECKPOINTING, JobState.EVALUATING):
            work_orders.enter_phase(self.db, holder.work, JobState(phase))

    @rule(
        target=holders,
        holder=holders,
        how=st.sampled_from(
            [
                "completed",
                "as requested",
                "requeued",
                "RANK_KILLED",
                "HANG",
                "INTERNAL",
                "OUT_OF_MEMORY",
                "DISK_FULL",
                "SCRIPT_ERROR",
            ]
        ),
        may_restart=st.booleans(),
    )
    def finish(self, holder: Holder, how: str, *, may_restart: bool) -> Any:
        job = self._job(holder.work.job_id)
        outcome = outcome_of(how, job.requested, holder.step)
        if not self._may_write(holder):
            assert refused(lambda: work_orders.finish(self.db, holder.work, outcome, NO_WAIT)), (
                "a stale holder ended it"
            )
            return multiple()
        if how == "completed" and job.state is JobState.PREPARING:
            work_orders.enter_phase(self.db, holder.work, JobState.TRAINING)
        ending = work_orders.finish(self.db, holder.work, outcome, NO_WAIT, may_restart=may_restart)
        assert ending.state == self._job(holder.work.job_id).state
        if job.requested == "cancel" and how != "completed":
            assert ending.state is JobState.CANCELLED
        if ending.restart is None:
            return multiple()
        assert may_restart
        return self._hold(work_orders.load_work(self.db, job.id, ending.restart), holder.node)

    @rule(holder=holders)
    def pause_fails(self, holder: Holder) -> None:
        before = self._job(holder.work.job_id)
        if not self._may_write(holder):
            assert refused(lambda: failed_pauses.withdraw(self.db, holder.work, "disk"))
            return
        failed_pauses.withdraw(self.db, holder.work, "disk")
        kept = before.requested != "pause" or before.pause_force or not before.pause_saves
        assert self._job(before.id).requested == (before.requested if kept else None)

    # ---- what always holds

    @invariant()
    def what_always_holds(self) -> None:
        """Of one state of the store: each question is asked once, whatever the number of jobs."""
        with self.db.read() as session:
            jobs = session.scalars(select(Job)).all()
            self._one_end_that_is_never_left(session, jobs)
            self._tokens_and_versions_only_rise(session, jobs)
            self._who_is_held_has_one_lease_and_its_devices(session, jobs)
            self._nothing_begins_after_a_cancel(jobs)
            assert all(job.retries_used <= job.max_retries for job in jobs)
            self._no_saved_step_is_forgotten(session, jobs)

    def _one_end_that_is_never_left(self, session: Session, jobs: Sequence[Job]) -> None:
        entered: dict[str, list[str | None]] = defaultdict(list)
        order = (
            select(JobEvent.job_id, JobEvent.to_status).where(JobEvent.to_status.is_not(None)).order_by(JobEvent.seq)
        )
        for job_id, status in session.execute(order):
            entered[job_id].append(status)
        for job in jobs:
            known = self.known[job.id]
            assert known.ended in ("", job.status), f"{job.id} left {known.ended} for {job.status}"
            known.ended = job.status if job.state in TERMINAL else ""
            to = entered[job.id]
            assert to[-1] == job.status
            assert not set(to[:-1]) & {str(state) for state in TERMINAL}

    def _tokens_and_versions_only_rise(self, session: Session, jobs: Sequence[Job]) -> None:
        tokens: dict[str, list[int]] = defaultdict(list)
        for job_id, token in session.execute(select(Attempt.job_id, Attempt.fence).order_by(Attempt.number)):
            tokens[job_id].append(token)
        for job in jobs:
            known = self.known[job.id]
            assert job.fence >= known.fence
            assert job.version >= known.version
            known.fence, known.version = job.fence, job.version
            assert tokens[job.id] == sorted(set(tokens[job.id])), "two attempts with one token"

    def _who_is_held_has_one_lease_and_its_devices(self, session: Session, jobs: Sequence[Job]) -> None:
        leased = select(Lease.job_id, Lease.fence, Lease.attempt).where(Lease.released_at.is_(None))
        live = {job_id: (fence, attempt) for job_id, fence, attempt in session.execute(leased)}
        assert live == {job.id: (job.fence, job.attempt) for job in jobs if job.state in HELD}
        holding = {(job_id, attempt) for job_id, (_, attempt) in live.items()}
        booked = {tuple(row) for row in session.execute(select(Reservation.job_id, Reservation.attempt))}
        assert booked == holding
        open_records = select(Attempt.job_id, Attempt.number).where(Attempt.ended_at.is_(None))
        assert {tuple(row) for row in session.execute(open_records)} == holding, (
            "a record is open without an attempt, or closed with"
        )

    def _nothing_begins_after_a_cancel(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            cancelled_at = self.known[job.id].cancelled_at_attempt
            assert cancelled_at in (None, job.attempt)

    def _no_saved_step_is_forgotten(self, session: Session, jobs: Sequence[Job]) -> None:
        by_job = select(Checkpoint.job_id, func.max(Checkpoint.step)).group_by(Checkpoint.job_id)
        newest = dict(session.execute(by_job).all())
        for job in jobs:
            if job.latest_checkpoint_id is not None:
                assert newest.get(job.id) == self.known[job.id].saved_step

    def teardown(self) -> None:
        """With time, honest holders and people who resume, everything ends; and stays so, whatever is asked of it."""
        if not hasattr(self, "known"):
            return
        if not any(self._bring_on() for _ in range(ROUNDS_TO_THE_END)):
            raise AssertionError(f"jobs that never end: {self._states()}")
        for job_id in self.known:
            self.cancel(job_id)
            self.pause(job_id, saves=True, force=False)
            self.resume(job_id)
            self.save_now(job_id)
        self.what_always_holds()

    # ---- helpers

    def _bring_on(self) -> bool:
        """One round of an undisturbed system; whether every job has ended."""
        for job_id, state in self._states().items():
            if state is JobState.PENDING:
                self.admit(job_id)
            elif state is JobState.PAUSED:
                self.resume(job_id)
        self._start()
        for holder in [h for known in self.known.values() for h in known.holders if not h.silent]:
            if self._may_write(holder):
                is_requested = self._job(holder.work.job_id).requested is not None
                self.finish(holder, "as requested" if is_requested else "completed", may_restart=False)
        silent = any(h.silent and self._may_write(h) for known in self.known.values() for h in known.holders[-1:])
        self._let_time_pass(LEASE_LOOKS if silent else 1, renewing=-1)
        return set(self._states().values()) <= TERMINAL

    def _start(self) -> list[Holder]:
        started = []
        for placed in planner.plan_once(self.db):
            assert leases.claim(self.db, job_id=placed.job_id, attempt=placed.attempt, node=placed.node, boot_id="boot")
            started.append(self._hold(work_orders.load_work(self.db, placed.job_id, placed.attempt), placed.node))
        return started

    def _hold(self, work: WorkOrder, node: str) -> Holder:
        known = self.known[work.job_id]
        earlier = [holder.work.fence for holder in known.holders]
        assert all(work.fence > fence for fence in earlier), "a token was given twice"
        candidates = [candidate.step for candidate in work.resume]
        holder = Holder(work=work, node=node, step=candidates[0] if candidates else 0)
        known.holders.append(holder)
        return holder

    def _let_time_pass(self, looks: int, *, renewing: int) -> None:
        """Holders that are not silent renew; the reaper sweeps. Then waits before a retry, or for a disk, are over.

        ``renewing``: of each job's holders those from this one on; the last one is the only one that may.
        """
        for _ in range(looks):
            self._renew(renewing)
            with self.db.write() as session:
                session.execute(update(Node).values(heartbeat=Node.heartbeat + 1))
            self.now += TICK_SECONDS
            self.reaper.sweep(self.now)
        with self.db.write() as session:
            session.execute(update(Job).where(Job.not_before_at.is_not(None)).values(not_before_at=None))

    def _renew(self, renewing: int) -> None:
        for holder in [h for known in self.known.values() for h in known.holders[renewing:] if not h.silent]:
            work = holder.work
            renewed = not refused(
                partial(leases.renew, self.db, lease_id=work.lease_id, fence=work.fence, ran_seconds=1.0)
            )
            assert renewed == self._may_write(holder), "a stale holder renewed, or the true one could not"

    def _may_write(self, holder: Holder) -> bool:
        """By the newest claim, not by what the product would say."""
        if holder is not self.known[holder.work.job_id].holders[-1]:
            return False
        job = self._job(holder.work.job_id)
        return job.state in HELD and job.attempt == holder.work.attempt

    def _job(self, job_id: str) -> Job:
        with self.db.read() as session:
            return session.get_one(Job, job_id)

    def _states(self) -> dict[str, JobState]:
        """Of every job."""
        with self.db.read() as session:
            return {job_id: JobState(status) for job_id, status in session.execute(select(Job.id, Job.status))}

    def _new_reaper(self) -> Reaper:
        settings = load_settings({"TRAINYARD_SCHEDULER_RETRY_BASE_SECONDS": "0.001"})
        return Reaper(self.db, settings, actor="reaper")
