"""The limits of an attempt: the job's own, and the node's limit of processes."""

from pathlib import Path
from typing import Any

import pytest

from app.domain.spec.model import ResourceConfig, ResourceLimits
from config.settings import load_settings
from workers.attempt_failed import AttemptFailed
from workers.prepare.limits import limits_of
from workers.sandbox.control_groups import CONTROLLERS, Hierarchies, Limits

SETTINGS = load_settings({"TRAINYARD_NODE_MAX_PROCESSES": "500"})
ALL = Hierarchies(dict.fromkeys(CONTROLLERS, Path("/groups")), 1)


def limited(**limits: Any) -> ResourceConfig:
    return ResourceConfig(limits=ResourceLimits(**limits))


def test_jobs_limits_hold_and_the_nodes_where_it_has_none():
    asked = limited(ram_mb=100, cpu_cores=1.5)

    assert limits_of(asked, SETTINGS, ALL) == Limits(memory_mb=100, cpus=1.5, processes=500)
    assert limits_of(limited(processes=7), SETTINGS, ALL) == Limits(processes=7)


def test_memory_of_a_job_without_a_limit_is_the_operators():
    settings = load_settings({"TRAINYARD_NODE_MAX_RAM_MB": "2000", "TRAINYARD_NODE_MAX_PROCESSES": "0"})

    assert limits_of(limited(), settings, ALL) == Limits(memory_mb=2000)
    assert limits_of(limited(ram_mb=100), settings, ALL) == Limits(memory_mb=100)
    assert limits_of(ResourceConfig(ram_min_mb=5000), settings, ALL) == Limits(memory_mb=5000)


def test_node_that_can_not_hold_a_limit_starts_no_job_with_it():
    only_processes = Hierarchies({"pids": Path("/groups")}, 1)

    with pytest.raises(AttemptFailed, match=r"no control groups for cpu, memory; run its worker as root"):
        limits_of(limited(ram_mb=100, cpu_cores=1), SETTINGS, only_processes)


def test_limit_that_is_not_required_holds_where_it_can():
    asked = limited(ram_mb=100, processes=3, required=False)

    assert limits_of(asked, SETTINGS, Hierarchies({}, 2)) == Limits(memory_mb=100, processes=3)


def test_limit_of_the_operator_is_no_demand():
    assert limits_of(limited(), SETTINGS, Hierarchies({}, 2)) == Limits(processes=500)
