"""The limits of an attempt: the job's own, and the node's limit of processes."""

import os
import resource
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.domain.spec.frameworks.requirements import needed
from app.domain.spec.model import JobDocument, ResourceConfig, ResourceLimits
from app.services.attempts.work_orders import WorkOrder
from config.settings import load_settings
from workers.attempt_failed import AttemptFailed
from workers.prepare.limits import limits_here, limits_of, own_cores, resource_limits_of, with_most_processes
from workers.sandbox.control_groups import CONTROLLERS, GroupLimits, Hierarchies
from workers.sandbox.disk_rates import DiskRates
from workers.sandbox.sandbox import Bubblewrap, ProcessGroup

SETTINGS = load_settings({"TRAINYARD_NODE_MAX_PROCESSES": "500"})
ALL = Hierarchies(dict.fromkeys(CONTROLLERS, Path("/groups")), 1)


def limited(**limits: Any) -> ResourceConfig:
    return ResourceConfig(limits=ResourceLimits(**limits))


def test_jobs_limits_hold_and_the_nodes_where_it_has_none():
    asked = limited(ram_mb=100, cpu_cores=1.5)

    assert limits_of(asked, SETTINGS, ALL) == GroupLimits(memory_mb=100, cpus=1.5, processes=500)
    assert limits_of(limited(processes=7), SETTINGS, ALL) == GroupLimits(processes=7)


def test_memory_of_a_job_without_a_limit_is_the_operators():
    settings = load_settings({"TRAINYARD_NODE_MAX_RAM_MB": "2000", "TRAINYARD_NODE_MAX_PROCESSES": "0"})

    assert limits_of(limited(), settings, ALL) == GroupLimits(memory_mb=2000)
    assert limits_of(limited(ram_mb=100), settings, ALL) == GroupLimits(memory_mb=100)
    assert limits_of(ResourceConfig(ram_min_mb=5000), settings, ALL) == GroupLimits(memory_mb=5000)


@pytest.mark.parametrize(
    ("setting", "cores", "ranks", "most"),
    [("-1", 2, 1, 256), ("-1", 96, 8, 6144), ("-1", 2, 8, 2048), ("-1", 1, 0, 256), ("70", 96, 8, 70), ("0", 96, 8, 0)],
)
def test_processes_of_a_job_are_by_cores_or_ranks_unless_the_operator_names_a_number(
    monkeypatch, setting, cores, ranks, most
):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    settings = load_settings({"TRAINYARD_NODE_MAX_PROCESSES": setting})

    assert with_most_processes(settings, ranks=ranks).node.max_processes == most


def test_node_that_can_not_hold_a_limit_starts_no_job_with_it():
    only_processes = Hierarchies({"pids": Path("/groups")}, 1)

    with pytest.raises(AttemptFailed, match=r"no control groups for cpu, memory; run its worker as root"):
        limits_of(limited(ram_mb=100, cpu_cores=1), SETTINGS, only_processes)


def test_node_that_lost_its_control_groups_starts_nothing_below_what_its_operator_demands(monkeypatch):
    found = Hierarchies({"pids": Path("/groups")}, 1)
    monkeypatch.setattr("workers.prepare.limits.find_hierarchies", lambda: found)
    settings = load_settings({"TRAINYARD_NODE_SANDBOX_LEAST": "sandbox:full"})

    with pytest.raises(AttemptFailed, match="no control groups, and its operator demands sandbox:full"):
        limits_here(cast("WorkOrder", SimpleNamespace(document=JobDocument())), settings, Bubblewrap())


def test_limit_that_is_not_required_holds_where_it_can():
    asked = limited(ram_mb=100, processes=3, required=False)

    assert limits_of(asked, SETTINGS, Hierarchies({}, 2)) == GroupLimits(memory_mb=100, processes=3)


def test_limit_of_the_operator_is_no_demand():
    assert limits_of(limited(), SETTINGS, Hierarchies({}, 2)) == GroupLimits(processes=500)


def test_limits_of_each_process_are_the_jobs_alone():
    asked = limited(open_files=1000, stack_mb=16)

    assert resource_limits_of(asked, SETTINGS, ALL, Bubblewrap()) == {"open_files": 1000, "stack_mb": 16}
    assert resource_limits_of(limited(), SETTINGS, ALL, Bubblewrap()) == {}


def test_limit_above_the_workers_own_starts_no_job_unless_it_is_not_required():
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]

    with pytest.raises(AttemptFailed, match=rf"open_files is {most + 1}, and this node may give {most}; ask for less"):
        resource_limits_of(limited(open_files=most + 1), SETTINGS, ALL, Bubblewrap())
    asked = limited(open_files=most + 1, required=False)
    assert resource_limits_of(asked, SETTINGS, ALL, Bubblewrap()) == {
        "open_files": most + 1
    }  # the agent takes what it can


@pytest.mark.parametrize(
    ("user", "release", "sandbox", "held"),
    [
        (1000, "5.14.0-1", Bubblewrap(), True),
        (1000, "6.1-rc2", Bubblewrap(), True),
        (1000, "5.10.0", Bubblewrap(), False),  # it counts all processes of the user
        (0, "5.10.0", Bubblewrap(), True),  # its attempts have users of their own
        (0, "6.1.0", ProcessGroup(), False),
        (1000, "6.1.0", ProcessGroup(), False),
    ],
)
def test_kernel_holds_processes_where_no_group_can(user, release, sandbox, held, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "here", release, "", "")))
    none = Hierarchies({}, 2)

    found = resource_limits_of(limited(processes=70, required=False), SETTINGS, none, sandbox)

    assert found == ({"processes": 70} if held else {})
    assert resource_limits_of(limited(), SETTINGS, none, sandbox) == ({"processes": 500} if held else {})
    assert resource_limits_of(limited(), SETTINGS, ALL, sandbox) == {}


@pytest.mark.parametrize(
    ("pins", "reserved", "limit", "wanted"),
    [("true", 1, 0, 1), ("true", 0, 1, 0), ("true", 1, 4000.5, 4001), ("false", 1, 0, 0)],
)
def test_cores_are_those_reserved_or_up_to_the_limit(pins, reserved, limit, wanted, tmp_path):
    settings = load_settings({"TRAINYARD_NODE_PIN_CORES": pins, "TRAINYARD_DATA_DIR": str(tmp_path)})
    asked = ResourceConfig(cpu_cores=reserved, limits=ResourceLimits(cpu_cores=limit))

    cores = own_cores(reserved, asked, settings)

    assert (cores.wanted, len(cores.numbers)) == (wanted, wanted if wanted < 4000 else 0)


def test_rates_of_disks_are_held_as_far_as_the_groups_hold_them():
    one, two = (
        Hierarchies(dict.fromkeys(CONTROLLERS, Path("/groups")), version, disks=Path("/g")) for version in (1, 2)
    )
    asked = limited(read_mb_per_second=2, writes_per_second=5)

    found = limits_of(asked, SETTINGS, two)
    assert found.disks == DiskRates(read_bytes=2 << 20, writes=5)
    assert limits_of(limited(read_mb_per_second=2), SETTINGS, one).disks == DiskRates(read_bytes=2 << 20)
    assert limits_of(limited(writes_per_second=5, required=False), SETTINGS, ALL).disks == DiskRates(writes=5)
    for groups, word in ((one, "limits:writes"), (ALL, "limits:reads")):
        with pytest.raises(AttemptFailed, match=f"need {word}, and a node offers it when"):
            limits_of(asked, SETTINGS, groups)
    assert {"limits:reads", "limits:writes"} <= needed(JobDocument(resource_config=asked))
    assert needed(JobDocument(resource_config=limited(writes_per_second=5, required=False))) == frozenset()
