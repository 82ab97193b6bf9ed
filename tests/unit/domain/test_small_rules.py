"""The small pure rules: routing, lease watching, retention, thinning, ids, resources."""

import json
import math
import time
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.downsampling import FEWEST, downsample
from app.domain.ids import first_id, new_id
from app.domain.json_numbers import json_number, number_of
from app.domain.lifecycle.checkpoints import RetainedCheckpoint, best, scores, to_prune
from app.domain.lifecycle.lease_expiry import StandstillWatch
from app.domain.routing import admission_queue, broker_priority, dispatch_queue
from app.domain.scheduling.resources import GpuType, normalise_gpu_type, request_of
from app.domain.spec.model import JobDocument

# ---- routing


def test_priority_10_is_served_first_and_0_last() -> None:
    steps = [broker_priority(p) for p in range(11)]

    assert (steps[10], steps[5], steps[0]) == (0, 5, 9)
    assert steps == sorted(steps, reverse=True)
    assert set(steps) <= set(range(10))


def test_queues_are_named_after_what_consumes_them() -> None:
    assert admission_queue("default") == "jobs.default"
    assert dispatch_queue("cpu", "n1") == "cpu.n1"
    assert dispatch_queue("h200", "n1") == "gpu.h200.n1"


# ---- leases


def test_a_counter_that_stands_still_for_the_limit_is_reported() -> None:
    watch = StandstillWatch(limit_seconds=15)

    reports = [watch.observe([("a", 1), ("b", now)], float(now)) for now in range(20)]

    assert reports[14] == []
    assert reports[15] == ["a"]


def test_a_change_starts_the_watch_anew() -> None:
    watch = StandstillWatch(limit_seconds=15)
    for now in range(14):
        watch.observe([("a", 1)], float(now))

    assert watch.observe([("a", 2)], 14.0) == []
    assert watch.observe([("a", 2)], 20.0) == []
    assert watch.observe([("a", 2)], 29.0) == ["a"]


def test_time_without_observation_does_not_count() -> None:
    watch = StandstillWatch(limit_seconds=15)
    watch.observe([("a", 1)], 0.0)
    watch.reset()

    assert watch.observe([("a", 1)], 100.0) == []
    assert watch.observe([("a", 1)], 116.0) == []
    assert watch.observe([("a", 1)], 117.0) == ["a"]


def test_a_single_late_observation_is_not_enough() -> None:
    watch = StandstillWatch(limit_seconds=15)
    watch.observe([("a", 1)], 0.0)

    assert watch.observe([("a", 1)], 60.0) == []


def test_a_key_may_have_a_limit_of_its_own() -> None:
    watch = StandstillWatch(limit_seconds=4)

    reports = [watch.observe([("a", 1), ("b", 1)], float(now), {"b": 6.0}) for now in range(7)]

    assert (reports[4], reports[6]) == (["a"], ["a", "b"])


# ---- checkpoints


def kept(
    step: int, score_: float | None = None, *, pinned: bool = False, by_document: bool = False
) -> RetainedCheckpoint:
    return RetainedCheckpoint(checkpoint_id=f"c{step}", step=step, score=score_, pinned=pinned, kept=by_document)


@given(st.lists(st.tuples(st.floats(-9, 9) | st.none(), st.booleans()), max_size=12), st.integers(0, 6))
def test_retention_never_deletes_the_newest_the_best_or_a_pinned_one(
    rows: list[tuple[float | None, bool]], limit: int
) -> None:
    checkpoints = [kept(i, value, pinned=pinned) for i, (value, pinned) in enumerate(rows)]
    gone = to_prune(checkpoints, limit=limit)
    left = [c for c in checkpoints if c not in gone]

    assert not any(c.pinned for c in gone)
    assert not checkpoints or checkpoints[-1] in left
    assert best(checkpoints) in [*left, None]
    assert len(left) <= max(limit, 2 + sum(c.pinned for c in checkpoints)) or not gone


def test_retention_deletes_the_oldest_beyond_the_limit() -> None:
    assert [c.step for c in to_prune([kept(s) for s in (3, 1, 2, 4)], limit=2)] == [1, 2]


@pytest.mark.parametrize(
    ("by_document", "limit", "gone"), [((2, 4), 2, [1]), ((1, 2, 3, 4, 5), 1, []), ((5,), 1, [1, 2, 3]), ((), 4, [1])]
)
def test_checkpoints_of_save_at_are_neither_counted_nor_deleted(
    by_document: tuple[int, ...], limit: int, gone: list[int]
) -> None:
    checkpoints = [kept(step, by_document=step in by_document) for step in (1, 2, 3, 4, 5)]

    assert [c.step for c in to_prune(checkpoints, limit=limit)] == gone


def test_a_score_is_higher_for_the_better_model() -> None:
    measured = [{"eval_loss": 2.0}, {"eval_loss": float("nan")}, {}]

    assert scores(measured, "eval_loss", greater_is_better=False) == [-2.0, None, None]
    assert scores(measured, "loss", greater_is_better=False) == [-2.0, None, None]
    assert scores([{"accuracy": 0.5}], "accuracy", greater_is_better=True) == [0.5]


def test_a_loss_in_training_is_not_compared_with_one_of_an_evaluation() -> None:
    training = [{"loss": 1.0}, {"loss": 0.5}]

    assert scores(training, "loss", greater_is_better=False) == [-1.0, -0.5]
    assert scores([*training, {"loss": 0.1, "eval_loss": 3.0}], "loss", greater_is_better=False) == [None, None, -3.0]


# ---- thinning


@given(st.lists(st.floats(-1e6, 1e6), max_size=300), st.integers(FEWEST, 50))
def test_thinning_keeps_order_ends_and_extremes(values: list[float], max_points: int) -> None:
    points = list(enumerate(values))

    thinned = downsample(iter(points), len(points), max_points)

    assert len(thinned) <= max_points or len(points) <= max_points
    assert thinned == sorted(thinned)
    assert set(thinned) <= set(points)
    if points:
        kept_values = [v for _, v in thinned]
        assert (min(kept_values), max(kept_values)) == (min(values), max(values))
        assert (thinned[0], thinned[-1]) == (points[0], points[-1])


def test_thinning_needs_room_for_the_ends_and_the_extremes() -> None:
    with pytest.raises(ValueError, match="at least 4"):
        downsample([], 0, 3)


def test_a_series_that_grew_while_it_was_read_ends_with_its_newest_point() -> None:
    points = [(i, float(i % 7)) for i in range(130)]

    thinned = downsample(points, 100, 10)

    assert len(thinned) <= 10
    assert (thinned[0], thinned[-1]) == (points[0], points[-1])


@pytest.mark.parametrize("value", [1.5, math.nan, math.inf, -math.inf])
def test_numbers_that_json_lacks_are_written_by_name(value: float) -> None:
    written = json_number(value)

    read = number_of(None, written) if isinstance(written, str) else number_of(written, None)
    assert read == value or (math.isnan(read) and math.isnan(value))
    json.dumps(written, allow_nan=False)


# ---- ids and resources


def test_ids_sort_by_creation_and_are_uuid7() -> None:
    made = [new_id("job") for _ in range(2000)]
    stamp_ms = uuid.UUID(made[-1][4:]).int >> 80

    assert made == sorted(made)
    assert len(set(made)) == len(made)
    assert uuid.UUID(made[0][4:]).version == 7
    assert abs(stamp_ms / 1000 - time.time()) < 5


def test_first_id_of_a_moment_divides_ids_by_when_they_were_made() -> None:
    now, hour = datetime.now(UTC), timedelta(hours=1)

    assert first_id("evt", now - hour) < new_id("evt") < first_id("evt", now + hour)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("NVIDIA H200", ("h200", 0)),
        ("A100-80GB", ("a100", 81920)),
        ("NVIDIA A100-SXM4-80GB", ("a100", 81920)),
        ("NVIDIA H100 80GB HBM3", ("h100", 81920)),
        ("NVIDIA GeForce RTX 4090", ("rtx-4090", 0)),
        ("mig-1g.10gb", ("mig-1g.10gb", 0)),
        ("h100", ("h100", 0)),
        ("Tesla T4", ("t4", 0)),
        ("", ("", 0)),
    ],
)
def test_gpu_types_are_normalised(raw: str, expected: tuple[str, int]) -> None:
    assert normalise_gpu_type(raw) == expected


def test_auto_means_cuda_where_there_is_any() -> None:
    spec: dict[str, Any] = {"resource_config": {"gpu_count": 1}}

    assert request_of(JobDocument.from_json(spec), has_gpus=True).device_kind == "cuda"
    assert request_of(JobDocument.from_json(spec), has_gpus=False).device_kind == "cpu"


def test_script_that_mpirun_starts_needs_a_node_that_has_it() -> None:
    spec: dict[str, Any] = {
        "training_config": {"framework": {"type": "CUSTOM", "config": {"launcher": "mpi"}}},
        "resource_config": {"gpu_count": 2},
        "scheduling_config": {"required_capabilities": ["bf16"]},
    }

    assert request_of(JobDocument.from_json(spec), has_gpus=False).required_capabilities == {"bf16", "mpi"}


@pytest.mark.parametrize(
    ("framework", "needs"),
    [("DEEPSPEED", {"deepspeed"}), ("MEGATRON", {"megatron"}), ("FSDP", set()), ("CUSTOM", set())],
)
def test_framework_whose_libraries_are_installed_apart_needs_a_node_that_has_them(framework, needs) -> None:
    spec: dict[str, Any] = {"training_config": {"framework": {"type": framework}}, "resource_config": {"gpu_count": 1}}

    assert request_of(JobDocument.from_json(spec), has_gpus=False).required_capabilities == needs


def test_a_named_size_is_a_minimum_of_memory() -> None:
    spec: dict[str, Any] = {"resource_config": {"gpu_count": 2, "gpu_type": "A100-80GB", "gpu_memory_min_mb": 1000}}

    request = request_of(JobDocument.from_json(spec), has_gpus=False)

    assert (request.gpu_types, request.gpu_memory_min_mb) == ((GpuType("a100", 81920),), 1000)
    assert request.device_kind == "cuda"


def test_types_are_one_or_several_in_words() -> None:
    def said(gpu_type: str | list[str]) -> str:
        return request_of(JobDocument.from_json({"resource_config": {"gpu_type": gpu_type}}), has_gpus=False).gpu_type

    assert said("NVIDIA H100") == "h100"
    assert said(["A100-40GB", "A100-80GB", "H100"]) == "a100 or h100"
    assert said(["H100", "80GB"]) == ""
