"""What a soak came to: figures from its history, and the page that is kept of them."""

import json
import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from app.domain.lifecycle.states import TERMINAL
from tests.faults.history import History, JobHistory
from tests.faults.invariants import INVARIANTS

GOODPUT_GOAL = 0.8


@dataclass(frozen=True, kw_only=True)
class Happened:
    """One fault, and the job that it was aimed at."""

    kind: str
    boot_ns: int
    at: datetime
    job_id: str


def figures(history: History, happened: Sequence[Happened]) -> dict[str, Any]:
    """All of it in numbers, ready for JSON."""
    jobs = list(history.jobs.values())
    broken = [f"{name}: {what}" for name, invariant in INVARIANTS.items() for what in invariant(history)]
    lost_steps = [a.lost_steps or 0 for one in jobs for a in one.attempts if a.cause]
    return {
        "jobs": len(history.accepted),
        "ended": dict(Counter(one.job.status for one in jobs)),
        "attempts": sum(len(one.attempts) for one in jobs),
        "faults": len(happened),
        "lost": len([job_id for job_id in history.accepted if not _has_ended(history, job_id)]),
        "duplicates": len([what for what in broken if what.startswith("I3")]),
        "broken": broken,
        "steps": sum(one.asked_steps for one in jobs),
        "lost_steps": sum(lost_steps),
        "most_lost_steps": max(lost_steps, default=0),
        "lost_steps_bound": max((_bound(one) for one in jobs), default=0),
        "goodput": _goodput(jobs),
        "recovery": _recovery(jobs, happened),
    }


def is_good(report: dict[str, Any]) -> bool:
    goodput = report["goodput"]
    return not report["lost"] and not report["broken"] and (goodput is None or goodput >= GOODPUT_GOAL)


def page(report: dict[str, Any]) -> str:
    """Markdown: what was done, what came of it, and the JSON line."""
    goodput = "–" if report["goodput"] is None else f"{100 * report['goodput']:.1f} %"
    counted = [
        ("jobs taken", report["jobs"], ""),
        ("ended", ", ".join(f"{count} {status}" for status, count in sorted(report["ended"].items())), ""),
        ("attempts", report["attempts"], ""),
        ("faults", report["faults"], ""),
        ("jobs lost", report["lost"], "0"),
        ("trained twice at a time", report["duplicates"], "0"),
        ("contradictions to I1 to I12", len(report["broken"]), "0"),
        ("steps asked for", report["steps"], ""),
        ("steps lost, in all", report["lost_steps"], ""),
        ("steps lost by one fault, at most", report["most_lost_steps"], f"≤ {report['lost_steps_bound']}"),
        ("goodput", goodput, f"≥ {100 * GOODPUT_GOAL:.0f} %"),
    ]
    settings = f"seed {report['seed']}, {report['database']}, jobs of kind {report['training']}"
    lines = [
        f"# {report['minutes']:g} minutes of faults",
        "",
        f"`make soak MINUTES={report['minutes']:g}`; {settings}.",
    ]
    lines += ["", "| | | goal |", "|---|---|---|"]
    lines += [f"| {what} | {value} | {goal} |" for what, value, goal in counted]
    lines += [
        "",
        "Seconds from a fault to the next step of the job that it hit:",
        "",
        "| fault | times | cost an attempt | p50 | p99 | most |",
        "|---|---|---|---|---|---|",
    ]
    for kind, row in sorted(report["recovery"].items()):
        times = " | ".join("–" if row[key] is None else f"{row[key]:.1f}" for key in ("p50", "p99", "most"))
        lines.append(f"| {kind} | {row['times']} | {row['attempts']} | {times} |")
    lines += [f"\n{what}" for what in report["broken"]]
    return "\n".join([*lines, "", "```json", json.dumps(report), "```", ""])


def _has_ended(history: History, job_id: str) -> bool:
    return job_id in history.jobs and history.jobs[job_id].job.status in TERMINAL


def _goodput(jobs: Sequence[JobHistory]) -> float | None:
    """Of the witnessed jobs that were completed; None without any."""
    productive = total = 0.0
    for one in jobs:
        if one.leading and one.job.status == "COMPLETED":
            asked = one.job.spec["training_config"]["hyperparameters"]
            productive += one.asked_steps * float(asked["step_seconds"])
            total += (one.leading[-1].last_ns - one.leading[0].first_ns) / 1e9
    return round(productive / total, 4) if total else None


def _bound(one: JobHistory) -> int:
    """Two intervals: one under way, and one that is still being stored while the next is trained."""
    asked = one.job.spec["training_config"]["hyperparameters"]
    every = asked.get("save_every") or one.job.spec["output_config"]["checkpoint"]["save_steps"]
    return 2 * int(every)


def _recovery(jobs: Sequence[JobHistory], happened: Sequence[Happened]) -> dict[str, dict[str, Any]]:
    """Kind of fault → how often, and how long until its job trained again; a power cut hits others, too."""
    by_id = {one.job.id: one for one in jobs}
    found: dict[str, list[float | None]] = {}
    for fault in happened:
        found.setdefault(fault.kind, []).append(_seconds_without(by_id[fault.job_id], fault))
    return {kind: _row(times) for kind, times in found.items()}


def _seconds_without(one: JobHistory, fault: Happened) -> float | None:
    """None when the fault cost the job no attempt."""
    before = [s for s in one.leading if s.first_ns <= fault.boot_ns]
    after = [s for s in one.leading if s.first_ns > fault.boot_ns and s.steps_ns]
    if before and after and before[-1].last_ns < fault.boot_ns + 10**9:
        return (after[0].steps_ns[0][1] - fault.boot_ns) / 1e9
    if not one.leading:  # no witness: as the system itself says
        again = [a.trained_at for a in one.attempts if a.trained_at is not None and a.trained_at > fault.at]
        return (min(again) - fault.at).total_seconds() if again else None
    return None


def _row(times: Sequence[float | None]) -> dict[str, Any]:
    known = sorted(seconds for seconds in times if seconds is not None)
    return {
        "times": len(times),
        "attempts": len(known),
        "p50": round(statistics.median(known), 2) if known else None,
        "p99": round(known[math.ceil(0.99 * len(known)) - 1], 2) if known else None,
        "most": round(known[-1], 2) if known else None,
    }
