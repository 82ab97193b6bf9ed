"""Sweeps and trials in words: the header of a sweep, the row of a trial, the sentence at the end."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import cast

from app.cli.output import duration
from trainyard.records import BestTrial, EarlierResult, Sweep, Trial, Value

# As short as in a sentence; the API's states are in capitals.
STATES = {
    "RUNNING": "running",
    "COMPLETED": "done",
    "STOPPED": "stopped",
    "EXPLOITED": "exploited",
    "FAILED": "failed",
    "CANCELLED": "cancelled",
}
SHOWN_RUNGS = 5
LONGEST_VALUE = 32  # characters
SHOWN_BARS = 40
_BARS = "▁▂▃▄▅▆▇█"
_LOW, _HIGH = 0.001, 100_000


def header(sweep: Sweep) -> str:
    """Id, name, method with rungs, trials, best, device hours, time left; the parts are three spaces apart."""
    parts = [f"{sweep['sweep_id']} {sweep['name']}", method(sweep), _trials(sweep), best(sweep), _device_hours(sweep)]
    if sweep["eta_seconds"] is not None and sweep["status"] in ("RUNNING", "FINISHING"):
        parts.append(f"about {about(sweep['eta_seconds'])}")
    if sweep["status"] in ("RUNNING", "FINISHING"):
        parts.append(forecast(sweep))
    return "   ".join(part for part in parts if part)


def method(sweep: Sweep) -> str:
    """``tpe + asha (100, 300, 900 steps)``."""
    from app.domain.sweeps.rungs import rungs_of  # noqa: PLC0415 – slow to import, and most commands show no method
    from app.domain.sweeps.spec import NONE, PATIENCE, EarlyStopping  # noqa: PLC0415 – as above

    document = sweep["document"]
    rule = EarlyStopping.from_json(document.get("early_stopping") or {})
    name = str((document.get("method") or {}).get("name", "tpe"))
    if rule.name == NONE:
        return name
    rungs = rungs_of(rule)
    if rule.name == PATIENCE:
        return f"{name} + patience ({rule.patience} reports, every {rule.min} {rule.unit})"
    shown = ", ".join(map(str, rungs[:SHOWN_RUNGS])) + (" …" if len(rungs) > SHOWN_RUNGS else "")
    return f"{name} + {rule.name} ({shown} {rule.unit})"


def best(sweep: Sweep) -> str:
    found = sweep["best"]
    if not found or not found["objectives"]:
        return ""
    name = _origin(found.get("earlier")) or f"#{found['number']}"
    return f"best {number(found['objectives'][0])} ({name})"


def forecast(sweep: Sweep) -> str:
    """``next device hour 1.4 (better by 0.012)``."""
    found = sweep.get("forecast")
    if not found:
        return ""
    expected = number(found["expected_best_after_an_hour"])
    return f"next device hour {expected} (better by {number(found['expected_improvement'])})"


def metrics(sweep: Sweep) -> list[str]:
    """The metrics of its objectives."""
    objective = sweep["document"].get("objective") or []
    return [str(each["metric"]) for each in (objective if isinstance(objective, list) else [objective])]


def columns(sweep: Sweep) -> list[str]:
    """The head of each column of ``row``."""
    return ["#", "state", *short_names(sweep["document"].get("parameters") or {}), *metrics(sweep), "step", "rung"]


def row(sweep: Sweep, trial: Trial) -> list[str]:
    values = trial["values"]
    names = sweep["document"].get("parameters") or {}
    return [
        str(trial["number"]),
        STATES.get(trial["state"], trial["state"].lower()),
        *(text(values[name]) if name in values else "–" for name in names),
        *_objectives(trial, len(metrics(sweep))),
        _step(trial),
        rung(trial),
    ]


def rung(trial: Trial) -> str:
    """``2 of 9 at 300``: the rank at the last rung, of the reports it was compared with.

    Of a result of an earlier sweep ``#4 of SWEEP``, the trial that it was there.
    """
    if trial["number"] < 0:
        return _origin(cast("BestTrial", trial)["earlier"]) or "of an earlier sweep"
    if trial["state"] in ("FAILED", "CANCELLED") or not trial["reports"]:
        return shortened(trial["reason"]) if trial["state"] in ("FAILED", "CANCELLED") else ""
    last = trial["reports"][-1]
    return f"{last['rank']} of {last['compared']} at {last['rung']}"


def short_names(parameters: Iterable[str]) -> list[str]:
    """The last part of a dotted path where no other parameter has the same."""
    names = list(parameters)
    lasts = [name.rpartition(".")[2] for name in names]
    return [last if lasts.count(last) == 1 else name for name, last in zip(names, lasts, strict=True)]


def values_of(values: Mapping[str, Value]) -> str:
    """``learning_rate 2.1e-04, lora_r 16``."""
    names = short_names(values)
    return ", ".join(f"{name} {text(value)}" for name, value in zip(names, values.values(), strict=True))


def text(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return number(value) if isinstance(value, int | float) else shortened(value, LONGEST_VALUE)


def number(value: float) -> str:
    """Four digits; whole numbers as they are."""
    if isinstance(value, int):
        return str(value)
    if not math.isfinite(value) or value == 0 or _LOW <= abs(value) < _HIGH:
        return f"{value:.4g}"
    mantissa, _, exponent = f"{value:.3e}".partition("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"


def shortened(words: str, longest: int = 60) -> str:
    """One line of at most ``longest`` characters."""
    line = " ".join(words.split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def about(seconds: float) -> str:
    """``1 h 10 min``, ``5 min``, ``40 s``."""
    minutes = round(seconds / 60)
    if minutes < 1:
        return f"{round(seconds)} s"
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest} min" if hours else f"{minutes} min"


def ending(sweep: Sweep, trials: Sequence[Trial]) -> str:
    """The outcome of an ended sweep in one line; ``trials`` are all of them, or empty where there are too many."""
    by_state = sweep["trials_by_state"]
    counts = ", ".join(f"{by_state[state]} {word}" for state, word in STATES.items() if by_state.get(state))
    line = f"{sweep['sweep_id']} {sweep['status']} after {duration(sweep['elapsed_seconds'])}, {sweep['trials']} trials"
    parts = [f"{line}: {counts}" if counts else line]
    if spared := steps_spared(trials):
        parts.append(f"early stopping spared {spared:.0%} of all steps")
    if shared := steps_shared(trials):
        parts.append(f"shared trunks {shared:.0%}")
    if found := sweep["best"]:
        parts.append(f"{best(sweep)}: {values_of(found['values'])}")
    elif sweep["status"] != "COMPLETED" and sweep["status_reason"]:
        parts.append(shortened(sweep["status_reason"], 400))
    return "; ".join(parts)


def progress(sweep: Sweep, trials: Sequence[Trial]) -> str:
    """``eval_loss ▁▂█▅   stopped early: 61% of all steps spared   shared trunks: 8%``, as far as there is some of it.

    ``trials``: those that are known, of a large sweep its newest ones.
    """
    of = "all steps" if len(trials) >= sweep["trials"] else f"the steps of the newest {len(trials)} trials"
    parts = []
    if line := sparkline([each["objectives"][0] for each in reversed(trials) if each["objectives"]]):
        parts.append(f"{metrics(sweep)[0]} {line}")
    if spared := steps_spared(trials):
        parts.append(f"stopped early: {spared:.0%} of {of} spared")
    if shared := steps_shared(trials):
        parts.append(f"shared trunks: {shared:.0%}")
    return "   ".join(parts)


def sparkline(values: Sequence[float]) -> str:
    """A bar for each of the last values between the lowest and the highest of them; empty for fewer than two."""
    shown = [value for value in values if math.isfinite(value)][-SHOWN_BARS:]
    if len(shown) < 2:
        return ""
    low, high = min(shown), max(shown)
    top = len(_BARS) - 1
    return "".join(_BARS[round((value - low) / (high - low) * top) if high > low else 0] for value in shown)


def steps_shared(trials: Sequence[Trial]) -> float:
    """The share of all steps that forks did not train."""
    wanted = sum(trial["total_steps"] or 0 for trial in trials)
    return sum(trial["steps_saved"] for trial in trials if trial["total_steps"]) / wanted if wanted else 0.0


def steps_spared(trials: Sequence[Trial]) -> float:
    """The share of all steps that stopped trials did not train."""
    wanted = sum(trial["total_steps"] or 0 for trial in trials)
    stopped = [trial for trial in trials if trial["state"] == "STOPPED" and trial["total_steps"]]
    return sum(max(0, (trial["total_steps"] or 0) - trial["step"]) for trial in stopped) / wanted if wanted else 0.0


def _objectives(trial: Trial, count: int) -> Iterator[str]:
    values: Sequence[float | None] = trial["objectives"] or [report["value"] for report in trial["reports"][-1:]]
    for i in range(count):
        value = values[i] if i < len(values) else None
        yield "" if value is None else number(value)


def _origin(earlier: EarlierResult | None) -> str:
    return f"#{earlier['number']} of {earlier['sweep_id']}" if earlier else ""


def _step(trial: Trial) -> str:
    if trial["waits_for"]:
        return "evaluated"
    if trial["state"] == "RUNNING" and not trial["step"]:
        return (trial["job_status"] or "").lower()
    is_over = trial["state"] != "RUNNING" or not trial["total_steps"]
    return str(trial["step"]) if is_over else f"{trial['step']}/{trial['total_steps']}"


def _trials(sweep: Sweep) -> str:
    most = (sweep["document"].get("budget") or {}).get("max_trials")
    return f"trial {sweep['trials']} of {most}" if most else f"trial {sweep['trials']}"


def _device_hours(sweep: Sweep) -> str:
    most = (sweep["document"].get("budget") or {}).get("max_device_hours")
    used = f"{sweep['device_hours']:.2f}"
    return f"{used} of {most:g} device hours" if most else f"{used} device hours"
