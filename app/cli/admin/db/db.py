"""`trainyard db`: creates the database and migrates its schema; groups the commands of the sibling modules."""

import importlib

import click

from app.cli.admin.db.backup import backup, restore, settle
from app.cli.admin.db.content import check, export
from app.cli.admin.db.prune import prune
from app.cli.database import cli_settings, failures_as_messages
from app.cli.output import json_option, print_fields, print_json


@click.group()
def db() -> None:
    """Manage the database: schema, backups, pruning."""


for _command in (check, backup, restore, settle, export, prune):
    db.add_command(_command)


@db.command()
@json_option
def init(as_json: bool) -> None:  # noqa: FBT001
    """Create what the first start requires: schema, secrets, default project, admin key."""
    from app.migrations.versioning import HEAD
    from app.services.operations import bootstrap

    with failures_as_messages():
        settings = bootstrap.prepare(cli_settings())
    result = {"revision": HEAD, "admin_key_file": str(settings.admin_key_file)}
    print_json(result) if as_json else print_fields(result)


@db.command()
@click.argument("revision", required=False)
@json_option
def upgrade(revision: str | None, as_json: bool) -> None:  # noqa: FBT001
    """Upgrade the schema to REVISION, by default the newest."""
    from app.migrations.versioning import HEAD

    _move("upgrade", revision or HEAD, as_json=as_json)


@db.command()
@click.argument("revision")
@click.confirmation_option(prompt="Newer columns and tables will be dropped with their content. Continue?")
@json_option
def downgrade(revision: str, as_json: bool) -> None:  # noqa: FBT001
    """Downgrade the schema to REVISION; `base` drops every table."""
    _move("downgrade", revision, as_json=as_json)


@db.command()
@json_option
def current(as_json: bool) -> None:  # noqa: FBT001
    """Show the database's schema revision and the one this version requires."""
    from app.migrations.versioning import HEAD

    result = {"revision": _revision(), "needed": HEAD}
    print_json(result) if as_json else print_fields({**result, "revision": result["revision"] or "none"})


@db.command(hidden=True)
@click.argument("number")
@click.argument("message")
def revision(number: str, message: str) -> None:
    """For developers: generate the migration NUMBER from the difference between models and database."""
    from app.database.from_settings import open_database

    with failures_as_messages():
        bound = open_database(cli_settings().database)
        importlib.import_module("app.migrations.runner").new_revision(bound.engine, message, number=number)
        bound.close()


def _move(direction: str, revision: str, *, as_json: bool) -> None:
    from app.database.from_settings import open_database

    with failures_as_messages():
        bound = open_database(cli_settings().database)
        getattr(importlib.import_module("app.migrations.runner"), direction)(bound.engine, revision)
        bound.close()
    result = {"revision": _revision()}
    print_json(result) if as_json else print_fields({"revision": result["revision"] or "none"})


def _revision() -> str | None:
    from app.database.from_settings import open_database
    from app.migrations.versioning import revision_of

    with failures_as_messages():
        bound = open_database(cli_settings().database)
        try:
            with bound.engine.connect() as connection:
                return revision_of(connection)
        finally:
            bound.close()
