"""Jobs that the leader submits are announced by messages when its own admission hangs."""

from tasks.background.own_admissions import ROUND_SECONDS, OwnAdmissions
from tasks.celery_app import SubmittedJob
from tests.unit.tasks.test_polls import Clock


def test_what_is_submitted_while_a_round_hangs_gets_a_message() -> None:
    rung, clock = list[SubmittedJob](), Clock()
    own = OwnAdmissions(lambda *job: rung.append(SubmittedJob(*job)), clock=clock)
    jobs = [SubmittedJob(f"job-{number}", "default", 5) for number in range(5)]

    own.expect(jobs[:1])
    with own.round():
        clock.now += ROUND_SECONDS / 2
        own.expect(jobs[1:2])
    with own.round():  # reads the second
        own.expect(jobs[2:3])
        own.announce_if_stuck()
        assert rung == []
        clock.now += ROUND_SECONDS
        own.expect(jobs[3:4])
        assert rung == jobs[1:4], "the first was admitted; the others wait behind what hangs"
        own.announce_if_stuck()
        assert rung == jobs[1:4], "once"
    clock.now += 60.0
    own.expect(jobs[4:])
    assert rung == jobs[1:4], "no round hangs"


def test_round_that_fails_hangs_no_longer() -> None:
    rung, clock = list[SubmittedJob](), Clock()
    own = OwnAdmissions(lambda *job: rung.append(SubmittedJob(*job)), clock=clock)
    try:
        with own.round():
            raise OSError
    except OSError:
        clock.now += 60.0
    own.expect([SubmittedJob("job-1", "default", 5)])

    assert rung == []
