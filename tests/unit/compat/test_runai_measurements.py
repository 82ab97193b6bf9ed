"""Metrics of a Run:ai workload: points, counts, requests."""

from datetime import UTC, datetime, timedelta

from app.compat.runai.measurements import MeasurementPoint, Window, counted, measured, requested
from app.domain.spec.model import ResourceConfig
from app.models import Attempt

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def minutes(number: float) -> datetime:
    return NOON + timedelta(minutes=number)


def test_values_are_the_newest_at_each_moment_and_none_long_after_the_last():
    points = [MeasurementPoint(minutes(0.5), 100), MeasurementPoint(minutes(1.9), 250)]

    found = measured("CPU_USAGE_CORES", points, Window(NOON, minutes(5), 5), freshest=timedelta(seconds=60))

    assert [each["value"] for each in found["values"]] == ["1", "2.5"]
    assert found["values"][0]["timestamp"] == "2026-01-01T12:01:00.000Z"


def test_pods_and_gpus_are_counted_over_the_attempts():
    def attempt(begin: float, end: float | None) -> Attempt:
        return Attempt(
            node_names=["a", "b"],
            device_indices=[[0, 1], [4, 5]],
            device_type="a100",
            device_share=50,
            created_at=minutes(begin),
            started_at=minutes(begin + 1),
            ended_at=None if end is None else minutes(end),
        )

    window, attempts = Window(NOON, minutes(4), 4), [attempt(0, 1.5), attempt(3, None)]

    def values(kind: str) -> list[str]:
        return [each["value"] for each in counted(kind, attempts, window)["values"]]

    assert values("POD_COUNT") == ["2", "0", "2", "2"]
    assert values("RUNNING_POD_COUNT") == ["2", "0", "0", "2"]
    assert values("GPU_ALLOCATION") == ["2", "0", "2", "2"]


def test_requests_are_constant_and_returned_only_for_requested_resources():
    window = Window(NOON, minutes(1), 2)

    asked = requested("CPU_MEMORY_REQUEST_BYTES", ResourceConfig(ram_min_mb=1024), window)

    assert [each["value"] for each in asked["values"]] == ["1073741824", "1073741824"]
    assert requested("CPU_REQUEST_CORES", ResourceConfig(), window)["values"] == []
