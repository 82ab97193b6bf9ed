from datetime import timedelta

import pytest

from app.domain.serving.document import Replicas
from app.domain.serving.scaling import is_above_target, needed, pause_after, wanted

FEW = Replicas(min=0, max=4, target_in_flight=16, idle_seconds=600)


def decided(replicas: Replicas = FEW, *, now: int, in_flight: int = 0, waiting: int = 0, **seconds: float) -> int:
    return wanted(
        replicas,
        now_wanted=now,
        in_flight=in_flight,
        waiting=waiting,
        seconds_above_target=seconds.get("above", 0.0),
        idle_seconds=seconds.get("idle", 0.0),
    )


@pytest.mark.parametrize(("requests", "replicas"), [(0, 0), (1, 1), (16, 1), (17, 2), (64, 4), (1000, 4)])
def test_replicas_are_needed_by_the_requests_up_to_the_most(requests: int, replicas: int) -> None:
    assert needed(FEW, requests, 0) == replicas
    assert needed(FEW, 0, requests) == replicas


def test_the_first_request_that_waits_starts_a_replica_at_once() -> None:
    assert decided(now=0, waiting=1) == 1


def test_more_replicas_start_when_there_was_too_much_to_do_for_some_seconds() -> None:
    assert decided(now=1, in_flight=17, above=4.9) == 1
    assert decided(now=1, in_flight=17, above=5.0) == 2
    assert decided(now=1, in_flight=50, above=5.0) == 4


def test_replicas_end_earlier_while_jobs_wait_for_their_devices() -> None:
    def left(idle: float, replicas: Replicas = FEW) -> int:
        return wanted(
            replicas, now_wanted=3, in_flight=5, waiting=0, seconds_above_target=0, idle_seconds=idle, jobs_wait=True
        )

    assert (left(14), left(15)) == (3, 1)
    assert left(5, Replicas(min=0, max=4, target_in_flight=16, idle_seconds=5)) == 1


def test_replicas_end_after_the_time_without_need_and_not_before() -> None:
    assert decided(now=3, in_flight=5, idle=599) == 3
    assert decided(now=3, in_flight=5, idle=600) == 1


def test_the_last_replica_ends_only_where_none_has_to_run() -> None:
    assert decided(now=1, idle=600) == 0
    assert decided(Replicas(min=1, max=4), now=1, idle=1e9) == 1


def test_limits_that_were_changed_count_at_once() -> None:
    assert decided(Replicas(min=2, max=3), now=0) == 2
    assert decided(Replicas(min=0, max=2), now=4, in_flight=64, above=60) == 2


def test_requests_that_wait_count_towards_the_target() -> None:
    assert is_above_target(FEW, wanted=1, in_flight=10, waiting=7)
    assert not is_above_target(FEW, wanted=1, in_flight=10, waiting=6)


def test_pauses_after_failures_grow_to_minutes() -> None:
    pauses = [pause_after(failures) for failures in range(1, 9)]
    assert pauses == sorted(pauses)
    assert pauses[0] == timedelta(seconds=1)
    assert pauses[4] == pauses[-1] == timedelta(minutes=5)


def test_more_requests_that_wait_than_the_replicas_that_start_are_to_have_start_others_at_once() -> None:
    assert decided(now=1, waiting=16) == 1
    assert decided(now=1, waiting=17) == 2
    assert decided(now=2, in_flight=30, waiting=3) == 3
