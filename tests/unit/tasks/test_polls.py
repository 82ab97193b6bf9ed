"""When the coordinator's loops ask the database: nothing that may have changed or become due is left out."""

from tasks.background.changes import Poll


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def asked(poll: Poll, *, again_in: float | None = None) -> bool:
    if not poll.begin():
        return False
    poll.end(again_in)
    return True


def test_a_loop_asks_at_its_start_and_then_after_each_change() -> None:
    poll = Poll(30.0, clock=Clock())

    assert asked(poll)
    assert not asked(poll)
    poll.expect()
    assert asked(poll)
    assert not asked(poll)


def test_what_is_due_is_looked_at_in_time_without_a_change() -> None:
    clock = Clock()
    poll = Poll(30.0, clock=clock)
    assert asked(poll, again_in=4.0)
    assert poll.rest_seconds == 4.0

    clock.now += 3.9
    assert not asked(poll)
    clock.now += 0.2
    assert asked(poll)


def test_a_missed_change_is_found_by_the_next_full_poll() -> None:
    clock = Clock()
    poll = Poll(30.0, clock=clock)
    assert asked(poll, again_in=3600.0)

    clock.now += 29.9
    assert not asked(poll)
    clock.now += 0.2
    assert asked(poll)


def test_a_look_that_failed_stays_due() -> None:
    poll = Poll(30.0, clock=Clock())

    assert poll.begin()
    assert poll.begin(), "its questions were not answered"


def test_a_change_while_the_loop_asks_is_seen_by_its_next_look() -> None:
    poll = Poll(30.0, clock=Clock())

    assert poll.begin()
    poll.expect()
    poll.end()

    assert asked(poll)
    assert not asked(poll)
