"""How long ranks may say nothing before they hang: by their own steps, and by what they announce."""

import pytest

from config.watchdog import WatchSettings
from workers.supervisor.ranks.progress_watchdog import ProgressWatchdog

SETTINGS = WatchSettings(step_seconds=60.0, step_factor=10.0, first_step_seconds=1800.0, section_seconds=14_400.0)


def watch(*, custom: bool = False) -> ProgressWatchdog:
    made = ProgressWatchdog(SETTINGS, custom=custom)
    made.begin(100.0)
    return made


def stepping(seconds: float, steps: int = 10, *, custom: bool = False) -> tuple[ProgressWatchdog, float]:
    """One that has made steps of so many seconds, and the time."""
    made, now = watch(custom=custom), 100.0
    for step in range(steps):
        now += seconds
        made.step_made(step, now)
    return made, now


def allowed(made: ProgressWatchdog) -> float | None:
    limit = made.limit()
    return limit.seconds if limit is not None else None


def test_trainer_has_half_an_hour_for_its_first_step():
    assert allowed(watch()) == 1800.0


def test_loading_is_a_part_of_the_way_to_the_first_step():
    made = watch()
    made.section("loading", None, 103.0)

    assert allowed(made) == 1800.0


def test_script_that_never_reports_a_step_can_not_hang():
    script = watch(custom=True)
    script.phase("TRAINING", 101.0)
    script.values_of(3, 102.0)
    script.section("loading", None, 103.0)

    assert script.limit() is None


def test_script_that_never_reports_a_step_is_held_to_a_limit_of_its_own():
    script = watch(custom=True)
    script.section("loading", 30.0, 103.0)

    assert allowed(script) == 30.0


@pytest.mark.parametrize(("step_seconds", "limit"), [(0.1, 60.0), (6.0, 60.0), (7.0, 70.0), (300.0, 3000.0)])
def test_slow_steps_have_longer(step_seconds, limit):
    made, _ = stepping(step_seconds)

    assert allowed(made) == pytest.approx(limit)


def test_hang_is_counted_from_the_last_step():
    made, now = stepping(1.0)
    limit = made.limit()

    assert limit is not None
    assert not limit.overdue(now + 60.0)
    assert limit.overdue(now + 60.1)


def test_one_slow_step_among_hundreds_does_not_count():
    made, now = stepping(1.0, steps=300)
    made.step_made(300, now + 500.0)

    assert allowed(made) == 60.0


def test_noise_of_five_times_is_no_hang():
    made, now = stepping(10.0, steps=20)
    made.step_made(20, now + 50.0)
    limit = made.limit()

    assert limit is not None
    assert not limit.overdue(now + 50.0 + 99.0)


def test_first_report_may_be_where_it_starts():
    made = watch()
    made.step_made(0, 105.0)

    assert allowed(made) == 1800.0


def test_script_that_reports_by_the_hour_has_hours():
    made = watch(custom=True)
    made.step_made(1, 100.0 + 3600.0)

    assert allowed(made) == 36_000.0


def test_values_of_a_new_step_are_a_sign_of_life():
    made, now = stepping(1.0)
    made.values_of(10, now + 50.0)
    made.values_of(10, now + 59.0)  # a thread that repeats itself is none
    limit = made.limit()

    assert limit is not None
    assert limit.since == now + 50.0


def test_announced_work_has_a_limit_of_its_own_and_is_no_part_of_a_step():
    made, now = stepping(1.0)
    made.phase("EVALUATING", now + 1.0)
    assert allowed(made) == 14_400.0

    made.phase("TRAINING", now + 1001.0)
    made.step_made(10, now + 1002.0)

    assert allowed(made) == 60.0


def test_limit_of_a_section_is_its_own():
    made, now = stepping(1.0)
    made.section("warm-up of the cache", 300.0, now)
    assert (allowed(made), made.doing()) == (300.0, "in its section 'warm-up of the cache'")

    made.section(None, None, now + 200.0)
    limit = made.limit()

    assert limit is not None
    assert (limit.since, limit.seconds) == (now + 200.0, 60.0)


def test_only_a_script_is_given_time_after_its_result():
    made, now = stepping(1.0)
    made.ended(now)
    script, now = stepping(1.0, custom=True)
    script.ended(now)

    assert allowed(made) == SETTINGS.stuck_seconds
    assert allowed(script) == 14_400.0


def test_counting_anew_is_no_step_time():
    made, now = stepping(1.0)
    made.step_made(1, now + 30.0)

    assert allowed(made) == 60.0


def test_ranks_that_wait_for_their_checkpoint_to_be_stored_do_not_hang():
    made, now = stepping(1.0)
    made.offered(now + 1.0)
    assert (allowed(made), made.doing()) == (14_400.0, "while its checkpoint is being stored")

    made.answered(now + 501.0)
    made.step_made(10, now + 502.0)

    assert allowed(made) == 60.0


def answering() -> ProgressWatchdog:
    """Of ranks that train nothing, once they have loaded their model."""
    made = ProgressWatchdog(SETTINGS, custom=False, trains=False)
    made.begin(100.0)
    assert allowed(made) == 1800.0, "for loading"
    made.phase("EVALUATING", 101.0)
    made.step_made(0, 102.0)
    return made


def test_first_shard_has_as_long_as_an_announced_section():
    assert allowed(answering()) == 14_400.0


@pytest.mark.parametrize(("seconds", "limit"), [(1.0, 1800.0), (300.0, 3000.0)])
def test_shards_are_measured_whole_and_not_by_the_record(seconds, limit):
    made, now = answering(), 102.0
    for shard in range(1, 5):
        now += seconds
        made.step_made(512 * shard, now)

    assert allowed(made) == limit
    assert made.doing() == "working on a shard"


def test_tokens_within_a_shard_are_a_sign_of_life():
    made = answering()
    made.step_made(0, 500.0, tokens=100)
    made.step_made(0, 900.0, tokens=200)
    made.step_made(0, 1200.0, tokens=200)

    limit = made.limit()

    assert limit is not None
    assert (limit.since, limit.seconds) == (900.0, 4000.0)


def test_shard_that_waits_to_be_stored_is_no_hang():
    made = answering()
    made.step_made(4, 110.0)
    made.offered(111.0)

    assert (allowed(made), made.doing()) == (14_400.0, "while its shard is being stored")


def test_answer_of_a_model_is_waited_for_as_a_section_and_no_part_of_a_step():
    made = answering()
    made.step_made(4, 110.0)
    for at in (111.0, 112.0):
        made.asked(at)

    made.model_answered(113.0)
    limit = made.limit()
    assert limit is not None
    assert (limit.since, allowed(made), made.doing()) == (113.0, 14_400.0, "waiting for the answer of a model")
    made.model_answered(114.0)
    made.model_answered(115.0)

    assert made.doing() == "working on a shard"


def serving(now: float = 110.0) -> ProgressWatchdog:
    made = ProgressWatchdog(SETTINGS, custom=False, trains=False)
    made.begin(100.0)
    made.phase("SERVING", now)
    return made


def test_replica_without_requests_hangs_never():
    made = serving()
    made.section("idle", None, 111.0)

    assert made.limit() is None


def test_replica_with_requests_makes_steps():
    made = serving()
    made.section("idle", None, 111.0)
    made.section(None, None, 200.0)

    limit = made.limit()
    assert limit is not None
    assert (limit.since, limit.seconds) == (200.0, 300.0)
    made.step_made(1, 202.0, tokens=5)
    made.step_made(1, 204.0, tokens=5)
    made.values_of(9, 206.0)
    limit = made.limit()
    assert limit is not None
    assert limit.since == 202.0, "neither its load nor a repeated report is a step"
    assert made.doing() == "answering requests"


def test_loading_of_a_replica_has_a_limit_of_its_own():
    made = ProgressWatchdog(SETTINGS, custom=False, trains=False)
    made.begin(100.0)
    made.section("loading", None, 101.0)

    assert allowed(made) == 1800.0
