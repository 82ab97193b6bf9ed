"""`trainyard model-card`, `lineage` and `wandb`: where a model comes from, and a job's metrics as a run of W&B."""

from pathlib import Path

import click

from app.cli.connection import local_option, server
from app.cli.handles import job_argument, job_id_of
from app.cli.output import json_option, print_json, print_table


@click.command("model-card")
@job_argument
@local_option
@json_option
def model_card(*, handle: str, as_json: bool) -> None:
    """Print the model card of JOB, which has ended with a result, as Markdown."""
    with server() as client:
        job_id = job_id_of(client, handle)
        if as_json:
            print_json(client.provenance.model_card(job_id))
        else:
            click.echo(client.provenance.model_card_text(job_id), nl=False)


@click.command()
@job_argument
@click.option("--depth", type=click.IntRange(1, 5), help="How many steps from JOB other jobs may be away; default 2.")
@local_option
@json_option
def lineage(*, handle: str, depth: int | None, as_json: bool) -> None:
    """Show what JOB was made of, and what was made of it."""
    with server() as client:
        found = client.provenance.lineage(job_id_of(client, handle), depth=depth)
    if as_json:
        print_json(found)
        return
    names = {each["id"]: each["name"] for each in found["nodes"]}
    rows = [
        (each["source"], names[each["source"]], each["relation"], each["target"], names[each["target"]])
        for each in found["links"]
    ]
    print_table(("from", "name", "is", "to", "name"), rows, empty="no links")
    if found["truncated"]:
        click.echo("There is more than is shown.", err=True)


@click.command()
@job_argument
@click.option("--to", default=".", type=click.Path(file_okay=False, path_type=Path), help="Default: this directory.")
@click.option("--wandb-project", default="", help="The project in W&B; default that of an offline run, or of the job.")
@click.option("--entity", default="", help="The team in W&B; default that of an offline run, or your own.")
@local_option
def wandb(*, handle: str, to: Path, wandb_project: str, entity: str) -> None:
    """Save the metrics of JOB as a directory for `wandb sync`; all its attempts are one run."""
    with server() as client:
        saved = client.provenance.wandb(job_id_of(client, handle), to, project=wandb_project, entity=entity)
    click.echo(saved)
