"""`trainyard projects`: whom everything belongs to, in the database."""

import click

from app.cli.administrator import ADMINISTRATOR, newest, picked
from app.cli.database import admin_database
from app.cli.names import checked_name
from app.cli.output import json_option, print_fields, print_json, print_table
from app.schemas.projects import ProjectSchema
from app.services import projects as services

MOST_PROJECTS = 10_000


@click.group()
def projects() -> None:
    """Projects, in the database."""


@projects.command("list")
@json_option
def list_projects(as_json: bool) -> None:  # noqa: FBT001
    """Every project."""
    with admin_database() as db, db.read() as session:
        items = ProjectSchema(many=True).dump(services.page(session, ADMINISTRATOR, newest(MOST_PROJECTS)).items)
    if as_json:
        print_json({"projects": items, "total_count": len(items)})
        return
    print_table(("name", "created"), picked(items, ("name", "created_at")), empty="no projects")


@projects.command()
@click.argument("name")
@json_option
def show(name: str, as_json: bool) -> None:  # noqa: FBT001
    """One project."""
    with admin_database() as db, db.read() as session:
        item = ProjectSchema().dump(services.require(session, name))
    print_json(item) if as_json else print_fields(item)


@projects.command()
@click.argument("name", callback=checked_name)
@json_option
def create(name: str, as_json: bool) -> None:  # noqa: FBT001
    """Make a project; again is fine."""
    with admin_database() as db, db.write() as session:
        item = ProjectSchema().dump(services.ensure(session, name))
    print_json(item) if as_json else click.echo(name)
