"""The table [jobs] of node.toml: what it may say, and what is taken from it."""

from typing import Any

import pytest

from app.domain.nodes.limits import KEYS, NodeLimits, limits_of, problems_of

CYXWIZ = {
    "max_concurrent": 3,
    "auto_accept": True,
    "auto_accept_min_payment": 10.0,
    "accept_training": True,
    "accept_inference": True,
    "default_gpu_memory_percent": 80,
    "default_cpu_threads": 4,
    "checkpoint_interval_epochs": 5,
    "max_checkpoints": 3,
    "heartbeat_interval_ms": 5000,
    "progress_report_interval_ms": 10000,
}


def test_every_key_of_a_cyxwiz_file_is_known() -> None:
    assert problems_of(CYXWIZ) == []
    assert KEYS.keys() - CYXWIZ.keys() == {"share_across_projects"}
    limits = limits_of(CYXWIZ)
    assert (limits.max_concurrent, limits.heartbeat_seconds, limits.progress_report_interval_ms) == (3, 5.0, 10_000)
    assert limits.job_defaults == {"checkpoint_interval_epochs": 5, "max_checkpoints": 3}


def test_an_empty_table_limits_nothing() -> None:
    assert limits_of({}) == NodeLimits()
    assert (NodeLimits().heartbeat_seconds, NodeLimits().job_defaults) == (None, {})


def test_an_unknown_key_is_named_with_those_that_are_known() -> None:
    (problem,) = problems_of({"max_running": 3})

    assert problem == f"jobs.max_running: unknown; known: {', '.join(KEYS)}"


@pytest.mark.parametrize(
    ("key", "value", "rule"),
    [
        ("max_concurrent", 0, "a whole number from 1 to 4096"),
        ("max_concurrent", True, "a whole number from 1 to 4096"),
        ("max_concurrent", 2.0, "a whole number from 1 to 4096"),
        ("auto_accept", 1, "true or false"),
        ("accept_training", "yes", "true or false"),
        ("accept_inference", 0, "true or false"),
        ("auto_accept_min_payment", -1, "a number of at least 0"),
        ("auto_accept_min_payment", float("nan"), "a number of at least 0"),
        ("auto_accept_min_payment", False, "a number of at least 0"),
        ("default_gpu_memory_percent", 101, "a whole number from 1 to 100"),
        ("default_cpu_threads", 0, "a whole number from 1 to 4096"),
        ("heartbeat_interval_ms", 99, "a whole number from 100 to 60000"),
        ("progress_report_interval_ms", 60_001, "a whole number from 100 to 60000"),
    ],
)
def test_a_value_without_a_meaning_is_refused_and_counts_nowhere(key: str, value: Any, rule: str) -> None:
    assert problems_of({key: value}) == [f"jobs.{key}: must be {rule}"]
    assert limits_of({key: value}) == NodeLimits()
