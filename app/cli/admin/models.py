"""`trainyard models`: base models with names, in the database."""

import click

from app.cli.admin.administrator import ADMINISTRATOR, picked
from app.cli.admin.database import admin_database
from app.cli.output import json_option, print_json, print_table


@click.group()
def models() -> None:
    """Name base models, which requests then name in place of a location, in the database."""


@models.command("list")
@json_option
def list_models(as_json: bool) -> None:  # noqa: FBT001
    """List base models and the fine-tuned models that can be used."""
    from app.services.model_registry import registered

    with admin_database() as db, db.read() as session:
        items = [registered.described(row) for row in registered.listed(session, ADMINISTRATOR)]
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
    from app.services.model_registry import registered

    with admin_database() as db:
        item = registered.described(registered.register(db, ADMINISTRATOR, name, location, project=project))
    print_json(item) if as_json else click.echo(name)


@models.command("rm")
@click.argument("name")
@json_option
def remove(name: str, as_json: bool) -> None:  # noqa: FBT001
    """Remove a base model's name: it is still listed, and refuses new jobs; its files are left alone."""
    from app.services.model_registry import registered

    with admin_database() as db:
        registered.remove(db, ADMINISTRATOR, name)
    print_json({"name": name, "removed": True}) if as_json else click.echo(f"{name} removed")
