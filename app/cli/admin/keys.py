"""`trainyard keys`: API keys, in the database."""

from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from app.cli.admin.administrator import ADMINISTRATOR, newest, picked
from app.cli.admin.database import admin_database, cli_settings
from app.cli.output import age, json_option, print_fields, print_json, print_table
from app.cli.text_options import checked_name, checked_text
from app.domain.names import DEFAULT_PROJECT
from app.schemas.keys import DEFAULT_GRACE_SECONDS, MAX_GRACE_SECONDS
from app.security.permissions import Role

if TYPE_CHECKING:
    from app.database.engine import Database
    from app.security.api_key_format import NewKey


MAX_KEYS = 10_000
MAX_NAME_LENGTH = 128
# The documented output of this command; the API's response has more fields.
PRINTED = ("key_id", "key", "access_key", "secret_key")


@click.group()
def keys() -> None:
    """Manage API keys, in the database."""


@keys.command("list")
@json_option
def list_keys(as_json: bool) -> None:  # noqa: FBT001
    """List every key, without its secret."""
    from app.schemas.keys import KeySchema
    from app.services.access import api_keys as services

    with admin_database() as db, db.read() as session:
        items = KeySchema(many=True).dump(services.page(session, ADMINISTRATOR, newest(MAX_KEYS)).items)
    if as_json:
        print_json({"keys": items, "total_count": len(items)})
        return
    rows = [
        {**item, "state": _state(item), "used": item["last_used_at"] and age(item["last_used_at"])} for item in items
    ]
    names = ("key_id", "name", "project", "role", "prefix", "state", "used")
    heads = ("id", "name", "project", "role", "begins with", "state", "last used")
    print_table(heads, picked(rows, names), empty="no keys")


@keys.command()
@click.option("--project", callback=checked_name, help=f"Project of the key.  [{DEFAULT_PROJECT}]")
@click.option("--role", type=click.Choice([str(role) for role in Role]), default=str(Role.USER), show_default=True)
@click.option(
    "--expires", type=click.IntRange(1, 36500), metavar="DAYS", help="Expire after this many days; by default never."
)
@click.option("--name", default="", callback=checked_text(MAX_NAME_LENGTH), help="A name or purpose to show in lists.")
@json_option
def create(project: str | None, role: str, expires: int | None, name: str, as_json: bool) -> None:  # noqa: FBT001
    """Create a key and print it; it is shown only once."""
    from app.security.secrets import SecretBox
    from app.services.access import api_keys as services

    wanted = Role(role)
    if wanted is not Role.SUPER_ADMIN:
        project = project or DEFAULT_PROJECT
    with admin_database() as db:
        if project is not None:
            _ensure_project(db, project)
        box = SecretBox(cli_settings().security.secret_key)
        made = services.create(db, box, role=wanted, project=project, name=name, expires_days=expires)
    _print_once(made, as_json=as_json)


@keys.command()
@click.argument("key_id")
@click.option(
    "--grace",
    type=click.IntRange(0, MAX_GRACE_SECONDS),
    default=DEFAULT_GRACE_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="How long the old key stays valid; 0 revokes it at once.",
)
@json_option
def rotate(key_id: str, grace: int, as_json: bool) -> None:  # noqa: FBT001
    """Replace a key with a new one and print it; it is shown only once."""
    from app.security.secrets import SecretBox
    from app.services.access import api_keys as services

    with admin_database() as db:
        box = SecretBox(cli_settings().security.secret_key)
        made = services.rotate(db, box, ADMINISTRATOR, key_id, grace_seconds=grace)
    _print_once(made, as_json=as_json)


@keys.command()
@click.argument("key_id")
@json_option
def revoke(key_id: str, as_json: bool) -> None:  # noqa: FBT001
    """Revoke a key at once."""
    from app.services.access import api_keys as services

    with admin_database() as db:
        services.revoke(db, ADMINISTRATOR, key_id)
    print_json({"key_id": key_id, "revoked": True}) if as_json else click.echo(f"{key_id} revoked")


def _ensure_project(db: "Database", name: str) -> None:
    """Creates the project if it is missing: a key usually follows its creation at once."""
    from app.models import Project
    from app.services.access import projects

    with db.write() as session:
        if session.get(Project, name) is None:
            projects.ensure(session, name, actor=ADMINISTRATOR.actor)
            click.echo(f"Created the project {name}.", err=True)


def _print_once(made: "NewKey", *, as_json: bool) -> None:
    from app.schemas.keys import NewKeySchema

    item = NewKeySchema().dump(made)
    printed = {name: item[name] for name in PRINTED}
    if as_json:
        print_json(printed)
        return
    print_fields(printed)
    click.echo("Store it now: it is not shown again.", err=True)


def _state(item: dict[str, Any]) -> str:
    from app.models.base import utc_now

    if item["revoked_at"]:
        return "revoked"
    if not item["expires_at"]:
        return "valid"
    over = datetime.fromisoformat(item["expires_at"]) <= utc_now()
    return "expired" if over else f"until {item['expires_at'][:16]}"
