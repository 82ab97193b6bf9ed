"""`trainyard sweep submit`: creates the sweep described by a file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from app.cli.client.documents.assignments import Assignment, set_option_like
from app.cli.client.submit import completed, project_option, read_document, warn
from app.cli.client.sweeps import table
from app.cli.client.sweeps.watch import watch_to_end
from app.cli.connection import server
from app.cli.output import json_option, print_fields, print_json, print_table
from config.environment import client_tokens
from trainyard.records import SweepPlan

_FILE = click.Path(path_type=Path, exists=True, dir_okay=False, allow_dash=True)


@click.command()
@click.argument("file", type=_FILE)
@set_option_like("job.training_config.hyperparameters.max_steps=200")
@click.option(
    "--dry-run", is_flag=True, help="Validate the sweep; show its rungs and first values without creating it."
)
@click.option("--watch", "watches", is_flag=True, help="Follow the sweep to its end; exit code 3 unless it completes.")
@click.option("--wandb", "is_wandb", is_flag=True, help="FILE is a sweep file of Weights & Biases; needs --job.")
@click.option("--job", "job_file", type=_FILE, help="With --wandb: the job document of the trials, JSON or YAML.")
@project_option
@json_option
def submit(*, project: str, dry_run: bool, watches: bool, as_json: bool, **source: Any) -> None:
    """Create the sweep described by FILE, in JSON or YAML; - reads standard input.

    ${NAME} in its values stands for a variable of the environment, except in custom_command and custom_arguments.
    """
    document = _document(**source)
    with server(project) as client:
        if dry_run:
            _show(client.sweeps.dry_run(document, tokens=client_tokens()), as_json=as_json)
            return
        created = client.sweeps.create(document, tokens=client_tokens())
        sweep_id = created["sweep_id"]
        warn(created["warnings"])
        if watches:
            if not as_json:
                click.echo(f"Created {sweep_id}")
            watch_to_end(client, sweep_id, as_json=as_json)
        elif as_json:
            print_json(created)
        else:
            click.echo(sweep_id)
            click.echo(f"Follow it with: trainyard sweep watch {sweep_id}", err=True)


def _document(
    *, file: Path, job_file: Path | None, assignments: Sequence[Assignment], is_wandb: bool
) -> dict[str, Any]:
    if is_wandb != (job_file is not None):
        raise click.UsageError(
            "a sweep file of Weights & Biases names no model and no data: give the job document of its trials by --job"
            if is_wandb
            else "--job counts with --wandb only: a sweep document has its job inside"
        )
    document = read_document(file, "sweep document", see="docs/reference/sweeps.md")
    if job_file is None:
        return completed(document, assignments)
    from app.cli.client.sweeps.wandb import NotTranslated, translated  # noqa: PLC0415 – slow to import

    job = read_document(job_file)
    try:
        found, warnings = translated(document, job, default_name=file.stem.strip("-") or "sweep")
    except NotTranslated as error:
        raise click.ClickException(f"{file}: {error}") from error
    warn(warnings)
    return completed(found, assignments)


def _show(plan: SweepPlan, *, as_json: bool) -> None:
    if as_json:
        print_json(plan)
        return
    hours = {"device hours at most": plan.get("device_hours_at_most")}
    print_fields({"points of the grid": plan["grid_size"], **hours, "valid": "yes"})
    if plan["rungs"]:
        print_table(("rung", "trials expected"), [(each["rung"], each["trials"]) for each in plan["rungs"]], empty="")
    suggestions = [(i, table.values_of(values)) for i, values in enumerate(plan["suggestions"])]
    print_table(("#", "first values"), suggestions, empty="no values yet")
    if plan["trunks"]:
        forks = [(each["trial"], f"trial {each['forked_from']}", each["step"]) for each in plan["trunks"]]
        print_table(("#", "begins with", "after step"), forks, empty="")
    warn(plan["warnings"])
