"""`trainyard models`: base models with names."""

import click

from app.cli.admin.columns import picked
from app.cli.connection import ServerGroup, server
from app.cli.output import json_option, print_json, print_table


@click.group(cls=ServerGroup)
def models() -> None:
    """List models with names; with a super admin's key name base models, which requests then name."""


@models.command("list")
@json_option
def list_models(as_json: bool) -> None:  # noqa: FBT001
    """List base models and the fine-tuned models that can be used."""
    with server() as client:
        items = client.models.list()
    if as_json:
        print_json({"models": items, "total_count": len(items)})
        return
    names = ("name", "kind", "project", "location", "job_id", "created_at", "removed_at")
    heads = ("name", "kind", "project", "location", "job", "created", "removed")
    print_table(heads, picked(items, names), empty="no models: name one with `trainyard models add NAME LOCATION`")


@models.command()
@click.argument("name")
@click.argument("location")
@click.option("--project", help="Only for this project; default for all.")
@json_option
def add(name: str, location: str, project: str | None, as_json: bool) -> None:  # noqa: FBT001
    """Name the model at LOCATION, a hub id, a directory that jobs may read, or a URI."""
    with server() as client:
        item = client.models.add(name, location, project=project)
    print_json(item) if as_json else click.echo(name)


@models.command("rm")
@click.argument("name")
@json_option
def remove(name: str, as_json: bool) -> None:  # noqa: FBT001
    """Remove a base model's name: it is still listed, and refuses new jobs; its files are left alone."""
    with server() as client:
        client.models.remove(name)
    print_json({"name": name, "removed": True}) if as_json else click.echo(f"{name} removed")
