"""Two sweeps of two projects share a cluster by device time, whichever began and however long their trials are."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest
from sqlalchemy import select, update

from app.domain.lifecycle.outcomes import Outcome
from app.domain.lifecycle.states import JobState
from app.models import Job
from app.models.base import utc_now
from app.security.permissions import Role
from app.services.attempts import leases, work_orders
from app.services.attempts.work_orders import WorkOrder
from app.services.scheduling import planner
from app.services.telemetry import stored_metrics
from app.services.telemetry.stored_metrics import MetricValue, TelemetryReports
from tests.builders import walks
from tests.builders.factories import make_project
from tests.builders.sweep_runs import NODE, SweepRun
from tests.builders.sweeps import make_sweep_document
from tests.builders.walks import NO_WAIT
from tests.systems.apps import Api

pytestmark = [pytest.mark.long, pytest.mark.both_databases]

DEVICES = 4  # of the node of a SweepRun
SAVED_STEP = 9  # of 27, by what is preempted
MANY: dict[str, Any] = {"max_trials": 200, "parallel_trials": 8}


@dataclass
class Played:
    """The cluster in ticks: what trains holds its device until its trial is as long as its project's trials are."""

    api: Api
    lengths: dict[str, int]  # project → ticks of a trial
    sweeps: dict[str, SweepRun] = field(default_factory=dict)
    trains: dict[str, tuple[WorkOrder, int]] = field(default_factory=dict)  # job → its work, ticks left
    used: Counter[str] = field(default_factory=Counter)  # project → device ticks

    def begin(self, project: str) -> None:
        key = self.api.make_key(Role.USER, project)
        made = self.api.data(self.api.post("/v1/sweeps", make_sweep_document(budget=MANY), key=key), 201)
        self.sweeps[project] = SweepRun(self.api, existing=made["sweep_id"])

    def fill(self) -> None:
        """At most one trial of each sweep waits: each device takes a round."""
        for _ in range(DEVICES):
            self.use_devices()

    def tick(self) -> None:
        """Trials end one after the other."""
        for job_id, (work, left) in list(self.trains.items()):
            self.used[work.project] += 1
            self.trains[job_id] = work, left - 1
        for job_id in [job_id for job_id, (_, left) in self.trains.items() if not left]:
            self._end(job_id, Outcome(kind="completed", end_step=27))
            self.use_devices()

    def projects(self) -> Counter[str]:
        return Counter(work.project for work, _ in self.trains.values())

    def use_devices(self) -> None:
        """A step of each sweep, admission, a pass of the planner, and what nodes and supervisors do then."""
        for sweep in self.sweeps.values():
            sweep.step()
        with self.api.db.write() as session:
            session.execute(
                update(Job).where(Job.status == JobState.PENDING).values(status=JobState.QUEUED, queued_at=utc_now())
            )
        placed = planner.plan_once(self.api.db)
        with self.api.db.read() as session:
            stopped = session.scalars(select(Job.id).where(Job.requested == "preempt")).all()
        for job_id in stopped:
            walks.save(self.api.db, self.trains[job_id][0], SAVED_STEP)
            self._end(job_id, Outcome(kind="preempted", end_step=SAVED_STEP))
        placed += planner.plan_once(self.api.db) if stopped else []
        for each in placed:
            leases.claim(self.api.db, job_id=each.job_id, attempt=each.attempt, node=NODE, boot_id="boot-1")
            work = work_orders.load_work(self.api.db, each.job_id, each.attempt)
            begins = work.resume[0].step if work.resume else 0
            work_orders.enter_phase(self.api.db, work, JobState.TRAINING, start_step=begins)
            self.trains[each.job_id] = work, self.lengths[work.project]

    def _end(self, job_id: str, outcome: Outcome) -> None:
        work, _ = self.trains.pop(job_id)
        points = [MetricValue(name="eval_loss", step=outcome.end_step, at=utc_now(), value=1.0)]
        reports = TelemetryReports(points=points)
        stored_metrics.store(self.api.db, job_id=job_id, attempt=work.attempt, fence=work.fence, reports=reports)
        work_orders.finish(self.api.db, work, outcome, NO_WAIT)


def test_projects_get_equal_device_time_whoever_began_and_however_long_their_trials_are(api: Api) -> None:
    played = Played(api, lengths={"default": 2, "second": 1})
    played.begin("default")
    played.fill()
    assert played.projects() == {"default": DEVICES}, "alone it has all devices"
    played.begin("second")
    for _ in range(2):  # until the trials that were there have ended
        played.tick()
    played.used.clear()

    for _ in range(6):
        played.tick()

    assert played.used.total() == 6 * DEVICES, "no device is idle"
    assert abs(played.used["default"] - played.used["second"]) <= 2, "a trial's length"


def test_a_sweep_gives_another_project_its_share_within_one_pass_and_loses_no_trial(api: Api) -> None:
    with api.db.write() as session:
        make_project(session, "second").quota = {"cpu_slots": {"deserved": 1}}
    played = Played(api, lengths={"default": 2, "second": 2})
    played.begin("default")
    played.fill()
    assert played.projects() == {"default": DEVICES}
    played.begin("second")
    trained = set(played.trains)

    played.use_devices()

    assert played.projects() == {"default": DEVICES - 1, "second": 1}
    (preempted,) = trained - set(played.trains)
    for _ in range(9):
        played.tick()
        if walks.job_of(api.db, preempted).status == JobState.COMPLETED:
            break
    played.use_devices()
    trials = {trial.job_id: trial.state for trial in played.sweeps["default"].trials()}
    assert trials[preempted] == "COMPLETED"
    assert set(trials.values()) == {"RUNNING", "COMPLETED"}
    assert walks.job_of(api.db, preempted).attempt == 2
    assert walks.attempt_of(api.db, preempted, 2).start_step == SAVED_STEP
