"""What a rank may do without end is bounded: how often, how many names, how many points that wait."""

from datetime import UTC, datetime

from app.services.telemetry.stored_metrics import MetricValue
from config.redaction import Redaction
from workers.supervisor.recording.metric_buffer import MetricBacklog, MetricNames
from workers.supervisor.recording.rate_limit import TokenBucket


def point(step, name="loss"):
    return MetricValue(name=name, step=step, at=datetime.now(UTC), value=1.0)


def test_allowance_passes_a_burst_and_then_one_per_interval():
    now = [100.0]
    allowance = TokenBucket(3, 10.0, lambda: now[0])

    assert [allowance.take() for _ in range(5)] == [True, True, True, False, False]
    assert allowance.seconds_to_next() == 10.0

    now[0] += 10
    assert [allowance.take() for _ in range(2)] == [True, False]


def test_names_beyond_the_limit_are_left_out():
    names = MetricNames(["loss"], limit=2)

    assert names.admit({"loss": 1, "a": 2}) == {"loss": 1, "a": 2}
    assert not names.overflowed
    assert names.admit({"loss": 1, "b": 2}) == {"loss": 1}
    assert names.overflowed


def test_names_of_metrics_tell_no_secret():
    names = MetricNames(redaction=Redaction(["hunter2-is-long"]))
    long = "x" * 120 + "hunter2-is-long"

    assert names.admit({"a/hunter2-is-long": 1, "loss": 2, long[:128]: 3}) == {
        "a/***": 1,
        "loss": 2,
        "x" * 120 + "***": 3,
    }
    assert names.masked({"b hunter2-is-long": 1.0}) == {"b ***": 1.0}
    assert max(map(len, names.admit({"pwd=a/" + "y" * 122: 1}))) <= 128


def test_full_backlog_thins_every_series_and_keeps_its_newest_point():
    backlog = MetricBacklog(limit=1000)

    backlog.add([point(step, name) for step in range(1, 501) for name in ("a", "b")] + [point(1, "rare")])

    kept = backlog.first(2000)
    assert len(backlog) == len(kept) == 501
    for name in ("a", "b"):
        steps = [p.step for p in kept if p.name == name]
        assert steps == list(range(2, 501, 2))
    assert kept[-1].name == "rare"


def test_backlog_of_single_points_loses_the_oldest():
    backlog = MetricBacklog(limit=100)

    backlog.add([point(1, str(n)) for n in range(150)])

    assert len(backlog) <= 100
    assert backlog.first(100)[-1].name == "149"


def test_dropping_what_was_written_also_works_when_it_was_thinned_meanwhile():
    backlog = MetricBacklog(limit=100)
    backlog.add([point(step) for step in range(100)])
    written = backlog.first(50)
    backlog.add([point(100)])

    backlog.drop(written)

    assert [p.step for p in backlog.first(100)] == [*range(51, 100, 2), 100]
