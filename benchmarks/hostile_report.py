"""What `benchmarks/hostile.py` came to: figures from its answers and jobs, and the page that is kept of them."""

import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.hostile_api import Answer
from benchmarks.hostile_projects import Ran

SLOW_SECONDS = 1.0
NOTHING = "none"
BREAKS = ("hurt", "unexpected", "refused", "slow", "left")


def figures(answers: Sequence[Answer], ran: Sequence[Ran]) -> dict[str, Any]:
    """Of the innocent project's answers, by kind of request and by the attacks that ran meanwhile."""
    kinds = sorted({answer.kind for answer in answers})
    attacks = list(dict.fromkeys(one.attack for one in ran))
    quiet = [answer for answer in answers if not _during(answer, ran)]
    return {
        "answers": {kind: _row([a for a in answers if a.kind == kind], ran) for kind in kinds},
        "attacks": {attack: _attack_row(answers, [one for one in ran if one.attack == attack]) for attack in attacks},
        "quiet": _row(quiet, ran),
        "refused": [f"{a.kind}: {a.status}, with {_names(a, ran)}" for a in answers if not 200 <= a.status < 300],
        "slow": [
            f"{a.kind}: {a.seconds:.2f} s, after {a.began - answers[0].began:.0f} s, with {_names(a, ran)}"
            for a in answers
            if a.seconds > SLOW_SECONDS
        ],
    }


def is_good(report: dict[str, Any]) -> bool:
    return bool(report["answers"]) and not any(report[name] for name in BREAKS)


def spread(seconds: Iterable[float]) -> dict[str, Any]:
    """Count, median, the value that 99 of 100 don't exceed, and the most."""
    ordered = sorted(seconds)
    if not ordered:
        return {"count": 0, "p50": None, "p99": None, "most": None}
    rank = {name: ordered[math.ceil(share * len(ordered)) - 1] for name, share in (("p50", 0.5), ("p99", 0.99))}
    return {"count": len(ordered), **{k: round(v, 3) for k, v in rank.items()}, "most": round(ordered[-1], 3)}


def page(report: dict[str, Any]) -> str:
    """Markdown: what was done, what came of it, and the JSON line."""
    limits = "the limits that node settings have by default" if report["unlimited"] else "limits set for the node"
    jobs = report["jobs"]
    counted = [
        ("innocent jobs", jobs["innocent"], ""),
        ("hostile jobs", jobs["hostile"], ""),
        ("innocent jobs hurt", len({line.partition(":")[0] for line in report["hurt"]}), "0"),
        ("hostile jobs that ended otherwise than they should", len(report["unexpected"]), "0"),
        ("answers over 1 s for the innocent project", len(report["slow"]), "0"),
        ("requests of the innocent project refused", len(report["refused"]), "0"),
        ("processes, run directories, groups and files left", len(report["left"]), "0"),
        ("seconds of an innocent job, p50 / p99 / most", _seconds(report["innocent_seconds"]), ""),
        ("most processes on the machine", report["machine_extremes"]["most_processes"], ""),
        ("least free memory, MB", report["machine_extremes"]["least_free_memory_mb"], ""),
    ]
    lines = [f"# {report['minutes']:g} minutes with every tenth job hostile", ""]
    lines += [f"`python -m benchmarks.hostile --minutes {report['minutes']:g}`; {report['database']}, {limits}."]
    lines += ["", "| | | goal |", "|---|---|---|"]
    lines += [f"| {what} | {value} | {goal} |" for what, value, goal in counted]
    lines += ["", "Seconds of the innocent project's requests:", ""]
    lines += ["| request | times | p50 / p99 / most | attacks at the slowest |", "|---|---|---|---|"]
    lines += [f"| {k} | {r['count']} | {_seconds(r)} | {r['during']} |" for k, r in report["answers"].items()]
    lines += ["", "The same by the attack that ran meanwhile:", ""]
    lines += ["| attack | jobs | ended | requests | p50 / p99 / most |", "|---|---|---|---|---|"]
    for attack, row in report["attacks"].items():
        ended = ", ".join(f"{count} {end}" for end, count in sorted(row["ended"].items()))
        lines.append(f"| {attack} | {row['jobs']} | {ended} | {row['count']} | {_seconds(row)} |")
    lines.append(f"| {NOTHING} | | | {report['quiet']['count']} | {_seconds(report['quiet'])} |")
    for name in BREAKS:
        lines += ["", *(f"- {name}: {what[:500]}" for what in report[name])] if report[name] else []
    return "\n".join([*lines, "", "```json", json.dumps(report), "```", ""])


def _row(answers: Sequence[Answer], ran: Sequence[Ran]) -> dict[str, Any]:
    slowest = max(answers, key=lambda answer: answer.seconds, default=None)
    return {**spread(a.seconds for a in answers), "during": _names(slowest, ran) if slowest else NOTHING}


def _attack_row(answers: Sequence[Answer], ran: Sequence[Ran]) -> dict[str, Any]:
    ended = dict(Counter(one.end or one.status for one in ran))
    return {"jobs": len(ran), "ended": ended, **spread(a.seconds for a in answers if _during(a, ran))}


def _names(answer: Answer, ran: Sequence[Ran]) -> str:
    return ", ".join(sorted({one.attack for one in _during(answer, ran)})) or NOTHING


def _during(answer: Answer, ran: Sequence[Ran]) -> list[Ran]:
    """The hostile jobs that ran at some moment between the request and its answer."""
    end = answer.began + answer.seconds
    return [one for one in ran if one.began and one.began <= end and (not one.ended or one.ended >= answer.began)]


def _seconds(row: dict[str, Any]) -> str:
    return "–" if row["most"] is None else " / ".join(f"{row[name]:.3f}" for name in ("p50", "p99", "most"))
