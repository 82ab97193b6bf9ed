"""Utilisation, waits, fairness and goodput of replays small enough to be calculated by hand."""

import pytest

from simulation.fairness import jain, shares
from simulation.jobs import Behaviour
from simulation.measuring import measure, use_over_time, waits_of
from tests.builders.simulated import IDEAL, make_site, make_traced, replayed


def test_jains_index_is_one_for_equals_and_one_of_n_for_a_monopoly() -> None:
    assert jain([3, 3, 3]) == pytest.approx(1)
    assert jain([5, 0, 0, 0]) == pytest.approx(1 / 4)
    assert jain([1, 2, 3]) == pytest.approx(36 / 42)
    assert jain([]) == 1
    assert jain([0, 0]) == 1


def test_percentiles_are_waits_of_actual_jobs() -> None:
    waits = waits_of([float(seconds) for seconds in range(1, 101)])

    assert (waits.jobs, waits.mean, waits.p50, waits.p95, waits.longest) == (100, 50.5, 50, 95, 100)
    assert waits_of([7]).p95 == 7
    with pytest.raises(ValueError, match="there are no waits"):
        waits_of([])


def test_use_counts_while_jobs_come_and_waits_by_class() -> None:
    trace = [
        make_traced(0, 100, gpus=2, project="a"),
        make_traced(50, 100, project="b", priority=7),
        make_traced(200, 400, project="b"),
        make_traced(200, 1, gpus=9),
    ]

    report = measure(replayed(trace, make_site(2)))

    assert (report.jobs, report.finished, report.refused, report.never_started) == (4, 3, 1, 0)
    assert report.utilisation == {"h100": pytest.approx((2 * 100 + 100) / (2 * 200))}
    assert {name: waits.mean for name, waits in report.waits["project"].items()} == {"a": 0, "b": 25}
    assert list(report.waits["devices"]) == ["1", "2"]
    assert report.waits["priority"]["7"].longest == 50
    assert report.waits["all"][""].jobs == 3
    assert report.makespan_seconds == 600
    assert report.goodput == 1


def test_starts_saves_and_lost_work_are_no_goodput() -> None:
    trace = [make_traced(0, 900, priority=1, is_preemptible=True), make_traced(350, 100, priority=9)]
    forgets = Behaviour(start_seconds=0, save_seconds=0, checkpoint_seconds=300, saves_when_asked=False)

    report = measure(replayed(trace, make_site(1), behaviour=forgets))

    assert report.preemptions == 1
    assert report.lost_device_hours == pytest.approx(50 / 3600)
    assert report.goodput == pytest.approx(1000 / 1050)


def test_an_empty_trace_has_a_report() -> None:
    report = measure(replayed([], make_site(1)))

    assert (report.jobs, report.utilisation, report.fairness, report.goodput) == (0, {"h100": 0}, 1, 0)


def test_a_project_without_work_is_entitled_to_nothing_and_its_share_is_lent() -> None:
    site = make_site(4, quotas={"a": {"deserved": 2}, "b": {"deserved": 2}})
    trace = [make_traced(0, 100, gpus=4, project="a", is_preemptible=True), make_traced(500, 1, project="b")]

    got = shares(site, replayed(trace, site, behaviour=IDEAL).outcomes, since=0, until=100)

    assert (got["a"].got, got["a"].entitled) == (400, 400)
    assert (got["b"].got, got["b"].entitled, got["b"].ratio) == (0, 0, 1)


def test_entitled_is_what_is_deserved_then_by_weight_and_never_beyond_a_limit() -> None:
    quotas = {"a": {"deserved": 4, "over_quota_weight": 3.0}, "b": {"deserved": 2, "limit": 3}, "c": {}}
    site = make_site(8, 8, quotas=quotas)
    trace = [make_traced(0, 100, project=name, is_preemptible=True) for name in "abc" for _ in range(40)]

    got = shares(site, replayed(trace, site).outcomes, since=0, until=100)

    # b has its limit; of the 9 that are left after what is deserved and b's third, a gets three parts of four.
    assert [got[name].entitled / 100 for name in "abc"] == [pytest.approx(4 + 6.75), 3, pytest.approx(2.25)]


def test_what_stays_is_entitled_to_no_more_than_what_is_deserved() -> None:
    site = make_site(8, quotas={"a": {"deserved": 2}})
    trace = [make_traced(0, 100, project=name) for name in "ab" for _ in range(8)]

    got = shares(site, replayed(trace, site).outcomes, since=0, until=100)

    assert [got[name].entitled / 100 for name in "ab"] == [2, 6]
    assert got["a"].ratio == 1


def test_use_over_time_is_the_mean_of_each_part() -> None:
    trace = [make_traced(0, 100, gpus=2, project="a"), make_traced(150, 50, project="b")]

    assert use_over_time(replayed(trace, make_site(2)), 4, 200) == {"a": [2, 2, 0, 0], "b": [0, 0, 0, 1]}
