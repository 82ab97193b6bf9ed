"""Views of a followed sweep: a table redrawn in place on a terminal, lines in a file, JSON for programs."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

from app.cli.client.sweeps import table
from app.cli.output import console, print_json_line, printable, table_of
from trainyard.records import Sweep, Trial

if TYPE_CHECKING:
    from rich.console import Group

# Lines of the terminal beside the rows: header, head of the table, progress, reason, prompt.
OTHER_LINES = 6
LEAST_ROWS = 5


@dataclass(frozen=True)
class Snapshot:
    """A sweep, and its newest trials, newest first: all that run, and some of those that have ended."""

    sweep: Sweep
    trials: list[Trial] = field(default_factory=list)

    @property
    def has_ended(self) -> bool:
        return self.sweep["finished_at"] is not None


class TableView:
    """Redraws header and table at the bottom of the terminal; messages scroll by above them."""

    def __init__(self) -> None:
        from rich.live import Live  # noqa: PLC0415

        self._console = console()
        self._live = Live(console=self._console, auto_refresh=False)
        self._live.start()

    def show(self, snapshot: Snapshot) -> None:
        self._live.update(self._drawn(snapshot), refresh=True)

    def say(self, text: str) -> None:
        self._console.print(printable(text), markup=False)

    def close(self) -> None:
        self._live.stop()

    def _drawn(self, snapshot: Snapshot) -> "Group":
        from rich.console import Group  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        sweep = snapshot.sweep
        lines = [Text(printable(table.header(sweep)), style="bold")]
        if state := _state(sweep):
            lines.append(Text(printable(state), style="yellow", no_wrap=True, overflow="ellipsis"))
        rows = shown(snapshot, max(LEAST_ROWS, self._console.size.height - OTHER_LINES))
        if not rows:
            return Group(*lines)
        drawn = table_of(table.columns(sweep), [table.row(sweep, trial) for trial in rows])
        progress = table.progress(sweep, sorted(snapshot.trials, key=lambda trial: -trial["number"]))
        return Group(*lines, drawn, *([Text(printable(progress), no_wrap=True)] if progress else []))


class SweepLineView:
    """Prints one line for each trial that starts, is compared at a rung, or ends, and for each state of the sweep."""

    def __init__(self) -> None:
        self._is_first = True
        self._state = ""
        self._best: int | None = None
        self._seen: dict[int, tuple[str, int]] = {}  # number → state, reports

    def show(self, snapshot: Snapshot) -> None:
        sweep = snapshot.sweep
        if not snapshot.has_ended or self._is_first:
            self._show_state(sweep)
        for trial in reversed(snapshot.trials):
            for line in self._news(trial, table.metrics(sweep)):
                self._line(line)
        if (found := sweep["best"]) and found["number"] != self._best:
            self._best = found["number"]
            self._line(f"{table.best(sweep)}: {table.values_of(found['values'])}")
        self._is_first = False
        self._show_state(sweep)

    def say(self, text: str) -> None:
        click.echo(printable(text))

    def close(self) -> None:
        pass

    def _news(self, trial: Trial, metrics: list[str]) -> Iterator[str]:
        number, state, reports = trial["number"], trial["state"], trial["reports"]
        before, known = self._seen.get(number, ("", 0))
        self._seen[number] = (state, len(reports))
        if self._is_first and state != "RUNNING":
            return  # it had ended before anyone watched
        if not before:
            yield f"#{number} started: {table.values_of(trial['values'])}"
        for report in reports[known:]:
            value = "not finite" if report["value"] is None else table.number(report["value"])
            place = f"{report['rank']} of {report['compared']}"
            yield f"#{number} at {report['rung']}: {metrics[0]} {value}, {place}"
        if state not in ("RUNNING", before):
            yield f"#{number} {table.STATES[state]}{_outcome(trial, metrics)}"

    def _show_state(self, sweep: Sweep) -> None:
        if (state := f"{sweep['status']}  {_state(sweep)}".rstrip()) != self._state:
            self._state = state
            self._line(f"{table.header(sweep)}   {state}" if self._is_first else state)

    def _line(self, text: str) -> None:
        self.say(f"{time.strftime('%H:%M:%S')}  {text}")


class SweepJsonView:
    """Prints the whole sweep as one JSON line whenever it changed."""

    def __init__(self) -> None:
        self._version: object = None

    def show(self, snapshot: Snapshot) -> None:
        version = (snapshot.sweep["version"], snapshot.sweep["status"], snapshot.sweep["trials"])
        if version != self._version:
            self._version = version
            print_json_line(snapshot.sweep)

    def say(self, text: str) -> None:
        pass

    def close(self) -> None:
        pass


def shown(snapshot: Snapshot, most: int) -> list[Trial]:
    """The best trial, then those that run, then the newest of the others."""
    found = snapshot.sweep["best"]
    first = found["number"] if found else None
    ranked = sorted(
        snapshot.trials, key=lambda trial: (trial["number"] != first, trial["state"] != "RUNNING", -trial["number"])
    )
    return ranked[:most]


def _state(sweep: Sweep) -> str:
    """What a person should know beside the figures."""
    if sweep["status"] in ("PENDING", "RUNNING"):
        return table.shortened(sweep["pending_reason"], 200)
    return table.shortened(sweep["status_reason"], 200)


def _outcome(trial: Trial, metrics: list[str]) -> str:
    if trial["state"] == "COMPLETED" and trial["objectives"]:
        pairs = zip(metrics, trial["objectives"], strict=False)
        breaks = "" if trial["is_feasible"] else " (breaks a constraint)"
        return ": " + ", ".join(f"{metric} {table.number(value)}" for metric, value in pairs) + breaks
    return f": {table.shortened(trial['reason'], 200)}" if trial["reason"] else ""
