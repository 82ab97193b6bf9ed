"""Comparison of policies on one trace, as table rows and as JSON."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from app.domain.scheduling.planner import SchedulingPolicy
from simulation.chart import duration
from simulation.jobs import Behaviour
from simulation.measuring import ReplayReport, measure
from simulation.planners import POLICIES
from simulation.replay import Replay, replay
from simulation.trace import ReplayCluster, TraceJob

HEADS = (
    "policy",
    "in use",
    "mean wait",
    "p50",
    "p95",
    "longest",
    "fairness",
    "preempted",
    "lost",
    "goodput",
    "makespan",
    "finished",
)
ROLE_HEADS = (
    *("policy", "role", "jobs", "instances", "nodes", "devices", "progress", "goodput"),
    *("restarted alone", "ended attempts"),
)
WAIT_HEADS = ("policy", "jobs by", "", "jobs", "mean", "p50", "p95", "longest")


def compare(
    trace: Sequence[TraceJob],
    cluster: ReplayCluster,
    names: Iterable[str],
    policy: SchedulingPolicy,
    behaviour: Behaviour,
) -> dict[str, tuple[Replay, ReplayReport]]:
    """Policy name → its replay and report. Raises KeyError for one that is not in ``POLICIES``."""
    found = {}
    for name in names:
        done = replay(trace, cluster, POLICIES[name].planner(policy), behaviour)
        found[name] = done, measure(done)
    return found


def rows(reports: Mapping[str, ReplayReport]) -> list[tuple[str | int, ...]]:
    """One row per policy, with the columns ``HEADS``."""
    return [
        (
            name,
            ", ".join(f"{kind} {part:.1%}" for kind, part in report.utilisation.items()),
            *_waits(report),
            f"{report.fairness:.3f}",
            report.preemptions,
            f"{report.lost_device_hours:.1f} h",
            f"{report.goodput:.1%}",
            duration(report.makespan_seconds),
            f"{report.finished} of {report.jobs}",
        )
        for name, report in reports.items()
    ]


def wait_rows(reports: Mapping[str, ReplayReport]) -> list[tuple[str | int, ...]]:
    """One row per policy and class of jobs, with the columns ``WAIT_HEADS``."""
    return [
        (
            name,
            class_,
            value,
            each.jobs,
            duration(each.mean),
            duration(each.p50),
            duration(each.p95),
            duration(each.longest),
        )
        for name, report in reports.items()
        for class_, waits in report.waits.items()
        if class_ != "all"
        for value, each in waits.items()
    ]


def role_rows(reports: Mapping[str, ReplayReport]) -> list[tuple[str | int, ...]]:
    """One row per policy and role, with the columns ``ROLE_HEADS``."""
    return [
        (
            name,
            role,
            use.jobs,
            use.instances,
            f"{use.nodes:.2f}",
            f"{use.device_hours:.1f} h",
            f"{use.progress:.1%}",
            f"{use.goodput:.1%}",
            use.restarts,
            use.failures,
        )
        for name, report in reports.items()
        for role, use in report.roles.items()
    ]


def documents(reports: Mapping[str, ReplayReport]) -> dict[str, Any]:
    """All measurements for programs; times in seconds."""
    found: dict[str, Any] = {}
    for name, report in reports.items():
        shares = {
            project: {"got_device_seconds": share.got, "entitled_device_seconds": share.entitled, "ratio": share.ratio}
            for project, share in report.shares.items()
        }
        found[name] = {**asdict(report), "shares": shares}
    return {name: _rounded(report) for name, report in found.items()}


def _waits(report: ReplayReport) -> tuple[str, str, str, str]:
    each = report.waits["all"].get("")
    return tuple(duration(value) for value in (each.mean, each.p50, each.p95, each.longest)) if each else ("",) * 4  # type: ignore[return-value]


def _rounded(value: object) -> object:
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    return round(value, 6) if isinstance(value, float) else value
