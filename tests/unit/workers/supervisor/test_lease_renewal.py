"""The lease thread: when it arms the fence, and how it reports control requests and the loss of the lease."""

import threading
from dataclasses import dataclass, field

import pytest

from app.domain.errors import LeaseLost
from app.services.attempts.leases import ControlRequests
from config.settings import LeaseSettings
from workers.supervisor.control.lease_fence import boot_seconds
from workers.supervisor.control.lease_renewal import LeaseRenewal

REQUESTS = ControlRequests(requested="pause", pause_saves=True, checkpoint_requests=2)


@dataclass
class RecordingFence:
    """Kills no process; records every call."""

    armed: list[tuple[float, float]] = field(default_factory=list)
    disarmed: int = 0

    def arm(self, sent_at, seconds):
        self.armed.append((sent_at, seconds))

    def disarm(self):
        self.disarmed += 1

    def close(self):
        self.disarm()


class Lease:
    """A lease in a database with scripted answers, of which the last is repeated."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = 0
        self.changed = threading.Condition()

    def __call__(self):
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        with self.changed:
            self.asked += 1
            self.changed.notify_all()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def wait_asked(self, times):
        with self.changed:
            assert self.changed.wait_for(lambda: self.asked >= times, 5)


@pytest.fixture
def keep():
    started = []

    def make(lease, **seconds):
        fence, lost = RecordingFence(), threading.Event()
        heard: list[ControlRequests] = []
        settings = LeaseSettings(**{"renew_seconds": 0.02, "fence_seconds": 1.0, **seconds})
        renewal = LeaseRenewal(settings, fence, lease, on_requests=heard.append, on_lost=lambda reason: lost.set())
        started.append(renewal)
        return renewal, fence, heard, lost

    yield make
    for renewal in started:
        renewal.stop()


def test_every_confirmed_renewal_rearms_the_fence_from_its_sending(keep):
    before = boot_seconds()
    lease = Lease(REQUESTS)
    renewal, fence, heard, _ = keep(lease)

    renewal.start()
    lease.wait_asked(3)
    renewal.stop()

    sent = [at for at, _ in fence.armed]
    assert sent == sorted(sent)
    assert before <= sent[0] <= boot_seconds()
    assert {seconds for _, seconds in fence.armed} == {1.0}
    assert heard[0] == REQUESTS


def test_failed_renewal_does_not_rearm(keep):
    lease = Lease(REQUESTS, OSError("the database is away"))
    renewal, fence, _, lost = keep(lease)

    renewal.start()
    lease.wait_asked(2)
    renewal.stop()

    assert len(fence.armed) == 1
    assert not lost.is_set()


def test_lost_lease_is_reported_and_not_renewed_again(keep):
    lease = Lease(REQUESTS, LeaseLost("taken away"))
    renewal, fence, _, lost = keep(lease)

    renewal.start()

    assert lost.wait(5)
    renewal.stop()
    assert lease.asked == 2
    assert len(fence.armed) == 1


def test_nothing_starts_on_a_lease_that_is_lost_already(keep):
    renewal, fence, _, _ = keep(Lease(LeaseLost("taken away")))

    with pytest.raises(LeaseLost):
        renewal.start()

    assert fence.armed == []


def test_nothing_starts_when_the_first_renewal_is_never_confirmed(keep):
    renewal, fence, _, _ = keep(Lease(OSError("away")), fence_seconds=0.1)

    with pytest.raises(LeaseLost):
        renewal.start()

    assert fence.armed == []


class SlowFence(RecordingFence):
    """Waits within its second arming, that of the renewal's thread, so that another thread can interleave."""

    def __init__(self):
        super().__init__()
        self.is_arming, self.may_arm = threading.Event(), threading.Event()
        self.calls: list[str] = []

    def arm(self, sent_at, seconds):
        if self.calls:
            self.is_arming.set()
            assert self.may_arm.wait(5)
        self.calls.append("armed")

    def disarm(self):
        self.calls.append("disarmed")


def test_renewal_under_way_does_not_arm_what_was_unfenced():
    fence, lease = SlowFence(), Lease(REQUESTS)
    settings = LeaseSettings(renew_seconds=0.01, fence_seconds=1.0)
    renewal = LeaseRenewal(settings, fence, lease, on_requests=lambda _: None, on_lost=lambda _: None)
    renewal.start()
    assert fence.is_arming.wait(5)

    unfencing = threading.Thread(target=renewal.unfence)
    unfencing.start()
    unfencing.join(0.1)  # it would be through by then if it did not wait for the arming
    fence.may_arm.set()
    unfencing.join()
    lease.wait_asked(lease.asked + 2)

    assert fence.calls == ["armed", "armed", "disarmed"]
    renewal.stop()


def test_renewal_that_hangs_does_not_keep_the_end_waiting(keep):
    answered, asked, hangs = threading.Event(), threading.Event(), threading.Event()

    def renew():
        if asked.is_set():
            hangs.set()
            answered.wait(10)
        asked.set()
        return REQUESTS

    renewal, fence, _, _ = keep(renew)
    renewal.start()
    assert hangs.wait(5)

    renewal.stop(timeout_seconds=0.1)
    armed = len(fence.armed)
    answered.set()
    renewal.stop()

    assert fence.disarmed
    assert len(fence.armed) == armed


def test_nudge_renews_now(keep):
    lease = Lease(REQUESTS)
    renewal, _, _, _ = keep(lease, renew_seconds=60)
    renewal.start()

    renewal.nudge()

    lease.wait_asked(2)
    assert lease.asked == 2


def test_unfenced_renewal_continues_without_arming(keep):
    lease = Lease(REQUESTS)
    renewal, fence, _, _ = keep(lease)
    renewal.start()

    renewal.unfence()
    asked, armed = lease.asked, len(fence.armed)
    lease.wait_asked(asked + 3)

    assert len(fence.armed) <= armed + 1  # one may have been under way
    assert fence.disarmed


def test_errand_is_retried_until_it_succeeds_before_each_read_of_control_requests(keep):
    lease = Lease(REQUESTS)
    renewal, _, _, lost = keep(lease, renew_seconds=60.0)
    renewal.start()
    done: list[int] = []
    tries = iter([OSError("the database is away"), None])

    def errand() -> None:
        problem = next(tries)
        if problem is not None:
            raise problem
        done.append(lease.asked)

    renewal.run_before_next(errand)
    lease.wait_asked(2)  # the first try failed: renewed all the same
    assert done == []
    renewal.nudge()
    lease.wait_asked(3)

    assert done == [2]
    assert not lost.is_set()


def test_errand_under_a_stale_token_is_a_loss(keep):
    renewal, _, _, lost = keep(Lease(REQUESTS), renew_seconds=60.0)
    renewal.start()

    def errand() -> None:
        raise LeaseLost("another supervisor holds the job")

    renewal.run_before_next(errand)

    assert lost.wait(5)


def test_errand_that_can_never_work_is_dropped(keep):
    lease = Lease(REQUESTS)
    renewal, _, _, lost = keep(lease, renew_seconds=60.0)
    renewal.start()
    tried: list[int] = []

    def errand() -> None:
        tried.append(lease.asked)
        raise ValueError("nonsense")

    renewal.run_before_next(errand)
    lease.wait_asked(2)
    renewal.nudge()
    lease.wait_asked(3)

    assert tried == [1]
    assert not lost.is_set()
