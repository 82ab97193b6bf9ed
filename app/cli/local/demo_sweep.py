"""`trainyard demo --sweep`: a small search for hyperparameters over the demo's model."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from app.cli.client.sweeps import table
from app.cli.client.sweeps.views import Snapshot, SweepLineView, TableView
from app.cli.client.sweeps.watch import follow, outcome
from app.cli.client.watch import EXIT_NOT_COMPLETED, View
from app.cli.local.demo_processes import CHECKOUT
from app.cli.output import print_table, printable
from trainyard.client import Client, Job
from trainyard.records import Sweep

SWEEP = "examples/sweeps/lora.json"
SHOWN = 3
SMALLER = 9  # the first rung is this part of the last


def search(client: Client, assets: Path, steps: int | None) -> Job:
    """Run the sweep, show its best trials, and return the job of the best. Exits unless it completes."""
    created = client.sweeps.create(document(assets, steps))
    sweep_id = created["sweep_id"]
    click.secho(f"\nSearching for hyperparameters: {sweep_id}", bold=True)
    view: View[Snapshot] = TableView() if sys.stdout.isatty() else SweepLineView()
    try:
        sweep = follow(client, sweep_id, view)
    except KeyboardInterrupt:
        client.sweeps.cancel(sweep_id, reason="the demo was interrupted")
        raise
    finally:
        view.close()
    click.echo(printable(outcome(client, sweep)))
    if sweep["status"] != "COMPLETED":
        sys.exit(EXIT_NOT_COMPLETED)
    return _show(client, sweep)


def document(assets: Path, steps: int | None) -> dict[str, Any]:
    """The example's document; with ``steps`` trials of this length."""
    found: dict[str, Any] = json.loads((CHECKOUT / SWEEP).read_text(encoding="utf-8").replace("@ASSETS@", str(assets)))
    return found if steps is None else shortened(found, steps)


def shortened(found: Mapping[str, Any], steps: int) -> dict[str, Any]:
    """The document with trials of so many steps, and rungs within them."""
    training, output = found["job"]["training_config"], found["job"]["output_config"]
    first = max(1, steps // SMALLER)
    training = {
        **training,
        "hyperparameters": {**training["hyperparameters"], "max_steps": str(steps)},
        "evaluation": {"strategy": "steps", "steps": first},
    }
    output = {**output, "checkpoint": {**output["checkpoint"], "save_steps": steps}}
    job = {**found["job"], "training_config": training, "output_config": output}
    return {**found, "job": job, "early_stopping": {**found["early_stopping"], "min": first, "max": steps}}


def _show(client: Client, sweep: Sweep) -> Job:
    sweep_id = sweep["sweep_id"]
    best = client.sweeps.best(sweep_id, top=SHOWN)
    click.secho("\nThe best trials", bold=True)
    print_table(table.columns(sweep), [table.row(sweep, trial) for trial in best], empty="")
    replayed = client.sweeps.replay(sweep_id)
    verdict = "equal" if replayed["is_equal"] else "not equal"
    click.echo(
        f"Replay  {replayed['suggestions']} suggestions and {replayed['decisions']} decisions computed again: {verdict}"
    )
    return client.get(str(best[0]["job_id"]))
