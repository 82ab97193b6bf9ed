"""What ranks report: tokens of a script as a metric, and metrics of other roles."""

from datetime import UTC, datetime
from unittest.mock import Mock

import pytest

from app.services.telemetry.stored_metrics import MetricValue
from config.redaction import Redaction
from trainyard.protocol.messages import MetricPoint, Progress
from workers.supervisor.ranks.progress_watchdog import ProgressWatchdog
from workers.supervisor.ranks.rank_reports import MAX_ROLE_NAMES, RankReports
from workers.supervisor.recording.report_writer import Reporter
from workers.supervisor.recording.tensorboard_store import TensorboardStore

Report = Progress | MetricPoint


def logged(step: int, value: float) -> MetricPoint:
    return MetricPoint(step=step, at=datetime.now(UTC), values={"tokens": value})


def stored(*reported: Report, custom: bool = True) -> list[tuple[str, int, float]]:
    reporter = Mock(spec=Reporter)
    reports = RankReports(reporter, Mock(spec=TensorboardStore), Mock(spec=ProgressWatchdog))
    reports.start_from(0, (), Redaction([]), custom=custom)
    for each in reported:
        reports.take(each)
    points: list[MetricValue] = [point for call in reporter.points.call_args_list for point in call.args[0]]
    return [(point.name, point.step, point.value) for point in points]


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        ([Progress(step=1, tokens=40), Progress(step=3, tokens=120)], [("tokens", 1, 40.0), ("tokens", 3, 120.0)]),
        ([Progress(step=1), Progress(step=2, tokens=0)], []),
        ([logged(1, 10.0), Progress(step=1, tokens=40)], [("tokens", 1, 10.0)]),  # its own metric has precedence
    ],
)
def test_tokens_of_a_scripts_progress_are_a_metric(
    reported: list[Report], expected: list[tuple[str, int, float]]
) -> None:
    assert stored(*reported) == expected


def test_a_built_in_trainer_reports_the_metric_itself() -> None:
    assert stored(Progress(step=1, tokens=40), custom=False) == []


def test_metrics_of_other_roles_have_names_of_their_own_and_crowd_none_out() -> None:
    reporter, events = Mock(spec=Reporter), Mock(spec=TensorboardStore)
    reports = RankReports(reporter, events, Mock(spec=ProgressWatchdog))
    reports.start_from(0, (), Redaction([]), custom=True)
    reports.take(MetricPoint(step=9, at=datetime.now(UTC), values={"judge/taken": 1.0}))
    events.add.reset_mock()

    many = {f"n{number}": 2.0 for number in range(MAX_ROLE_NAMES + 50)}
    reports.metrics_of_role("judge", MetricPoint(step=3, at=datetime.now(UTC), values={"taken": 5.0, **many}))
    reports.take(MetricPoint(step=10, at=datetime.now(UTC), values={"loss": 0.5}))

    points = [point for call in reporter.points.call_args_list for point in call.args[0]]
    assert [point.value for point in points if point.name == "judge/taken"] == [1.0]
    assert len([point for point in points if point.name.startswith("judge/n")]) == MAX_ROLE_NAMES
    assert [(point.name, point.step) for point in points][-1] == ("loss", 10)
    assert [call.args[0] for call in events.add.call_args_list] == [10]  # no value of a role
    assert "beyond the first" in reporter.add.call_args_list[-1].args[0].message
    assert reports.last_step == 10


def test_use_of_another_node_has_names_of_its_own_at_the_step_of_the_job() -> None:
    reporter, events = Mock(spec=Reporter), Mock(spec=TensorboardStore)
    reports = RankReports(reporter, events, Mock(spec=ProgressWatchdog), part=2)
    reports.start_from(4, (), Redaction([]), custom=True)
    reports.job_step = 7

    reports.usage({"cpu_percent": 50.0, "gpu_utilization": 9.0})

    (points,) = (call.args[0] for call in reporter.points.call_args_list)
    assert [(point.name, point.step, point.value) for point in points] == [
        ("system/node-2/cpu_percent", 7, 50.0),
        ("system/node-2/gpu_utilization", 7, 9.0),
    ]
    assert reports.last_step == 4
    events.add.assert_not_called()
    reporter.gpu_sample.assert_not_called()
