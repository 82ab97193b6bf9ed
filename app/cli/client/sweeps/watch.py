"""`trainyard sweep watch`: follows a sweep to its end, with a row for each trial."""

import sys
from typing import Any

import click

from app.cli.client.sweeps import table
from app.cli.client.sweeps.views import Snapshot, SweepJsonView, SweepLineView, TableView
from app.cli.client.watch import EXIT_NOT_COMPLETED, View, poll_to_end
from app.cli.connection import server
from app.cli.output import json_option, printable
from app.cli.row_handles import sweep_argument
from trainyard.client import Client, RetryPolicy
from trainyard.records import SWEEP_TERMINAL, Sweep, Trial

LEAST_TRIALS = 60  # more than a terminal has lines for
MOST_TRIALS = 1000  # that are read at a time


@click.command()
@sweep_argument
@json_option
def watch(sweep_id: str, as_json: bool) -> None:  # noqa: FBT001
    """Follow SWEEP_ID to its end. Exit code 3 unless it ends COMPLETED; Ctrl-C leaves it running."""
    with server() as client:
        watch_to_end(client, sweep_id, as_json=as_json)


def watch_to_end(client: Client, sweep_id: str, *, as_json: bool = False) -> None:
    """Follow the sweep to its end, print its outcome, and exit with the matching code."""
    view: View[Snapshot] = SweepJsonView() if as_json else TableView() if sys.stdout.isatty() else SweepLineView()
    sweep = None
    try:
        sweep = follow(client, sweep_id, view)
    except KeyboardInterrupt:
        pass
    finally:
        view.close()
    if sweep is None:
        ways = f"Follow it: trainyard sweep watch {sweep_id} · cancel it: trainyard sweep cancel {sweep_id}"
        click.echo(f"\n{sweep_id} continues to run. {ways}", err=True)
        sys.exit(1)
    if not as_json:
        click.echo(printable(outcome(client, sweep)))
    if sweep["status"] != "COMPLETED":
        sys.exit(EXIT_NOT_COMPLETED)
    if not as_json and sweep["best"]:
        click.echo(f"Train the best once more: trainyard sweep best {sweep_id} --submit", err=True)
    sys.exit(0)


def follow(client: Client, sweep_id: str, view: View[Snapshot], **options: Any) -> Sweep:
    """Poll the sweep until it ends and return it."""
    reader = _Reader(client, sweep_id)

    def has_ended(snapshot: Snapshot) -> bool:
        return snapshot.sweep["status"] in SWEEP_TERMINAL

    return poll_to_end(reader.read, view, has_ended, what="sweep", **options).sweep


def outcome(client: Client, sweep: Sweep) -> str:
    """The outcome in one line."""
    is_small = sweep["trials"] <= MOST_TRIALS
    return table.ending(sweep, list(client.sweeps.trials(sweep["sweep_id"])) if is_small else ())


class _Reader:
    """Reads the sweep, and of its trials those that may have changed since the last time."""

    def __init__(self, client: Client, sweep_id: str) -> None:
        self._client = client
        self._sweep_id = sweep_id
        self._oldest_open: int | None = None  # number of the oldest trial that ran the last time
        self._best: Trial | None = None

    def read(self, patience: RetryPolicy | None) -> Snapshot:
        sweep = self._client.sweeps.get(self._sweep_id, patience=patience)
        trials = self._newest(sweep) if sweep["trials"] else []
        running = [trial["number"] for trial in trials if trial["state"] == "RUNNING"]
        self._oldest_open = min(running, default=sweep["trials"])
        return Snapshot(sweep, self._with_best(sweep, trials))

    def _newest(self, sweep: Sweep) -> list[Trial]:
        """Newest first, page after page, until all that run and all that ran the last time are among them."""
        running = sweep["trials_by_state"].get("RUNNING", 0)
        found: list[Trial] = []
        for trial in self._client.sweeps.trials(self._sweep_id, order_by="-number"):
            found.append(trial)
            running -= trial["state"] == "RUNNING"
            is_covered = running <= 0 and (self._oldest_open is None or trial["number"] <= self._oldest_open)
            if len(found) >= MOST_TRIALS or (is_covered and len(found) >= LEAST_TRIALS):
                break
        return found

    def _with_best(self, sweep: Sweep, trials: list[Trial]) -> list[Trial]:
        """The trials, and the best one where it is older; it has ended, so that it is read once."""
        number = sweep["best"]["number"] if sweep["best"] else None
        # A number below 0 is that of an earlier sweep's result.
        if number is None or number < 0 or any(trial["number"] == number for trial in trials):
            return trials
        if self._best is None or self._best["number"] != number:
            self._best = self._client.sweeps.trial(self._sweep_id, number)
        return [*trials, self._best]
