"""`trainyard keys`: API keys."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from app.cli.admin.columns import picked
from app.cli.choice import SuggestingChoice
from app.cli.connection import ServerGroup, is_local, server
from app.cli.output import Command, age, json_option, print_fields, print_json, print_table
from app.cli.text_options import checked_name, checked_text
from app.domain.administration import (
    DEFAULT_GRACE_SECONDS,
    LONGEST_KEY_NAME,
    MAX_EXPIRES_DAYS,
    MAX_GRACE_SECONDS,
    MOST_PER_MINUTE,
)
from app.domain.names import DEFAULT_PROJECT
from app.domain.suggestions import did_you_mean
from app.security.permissions import Role
from trainyard.client import Client, NotFound

if TYPE_CHECKING:
    from trainyard.records import Key, NewKey

# The documented output of this command; the API's response has more fields.
PRINTED = ("key_id", "key", "access_key", "secret_key")

AS_GATEWAYS = "default"


class _PerMinute(click.ParamType[int | str]):
    """A number, or ``default`` for what the settings of the gateways say."""

    name = "number|default"
    _range: click.ParamType[Any] = click.IntRange(0, MOST_PER_MINUTE)

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        return AS_GATEWAYS if value == AS_GATEWAYS else int(self._range.convert(value, param, ctx))


def _limit_options(command: Command) -> Command:
    for name in ("tokens", "requests"):
        meaning = f"{name.title()} to models" if name == "requests" else "Tokens of prompts and answers"
        text = f"{meaning} a minute; 0: no limit, default: as the gateways' settings say."
        command = click.option(f"--{name}-per-minute", type=_PerMinute(), help=text)(command)
    return command


def _chosen(limits: Mapping[str, int | str | None]) -> dict[str, int | None]:
    """The limits that were named, as the API takes them."""
    return {name: None if value == AS_GATEWAYS else int(value) for name, value in limits.items() if value is not None}


@click.group(cls=ServerGroup)
def keys() -> None:
    """Manage API keys: those of your project as its admin, and all of them as a super admin."""


@keys.command("list")
@json_option
def list_keys(as_json: bool) -> None:  # noqa: FBT001
    """List every key, without its secret, newest first."""
    with server() as client:
        items = list(client.keys.list())
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
@click.option("--project", callback=checked_name, help=f"Project of the key.  [your key's own, or {DEFAULT_PROJECT}]")
@click.option("--role", type=SuggestingChoice([str(role) for role in Role]), default=str(Role.USER), show_default=True)
@click.option(
    "--expires",
    type=click.IntRange(1, MAX_EXPIRES_DAYS),
    metavar="DAYS",
    help="Expire after this many days; by default never.",
)
@click.option("--name", default="", callback=checked_text(LONGEST_KEY_NAME), help="A name or purpose to show in lists.")
@_limit_options
@json_option
def create(
    project: str | None,
    role: str,
    expires: int | None,
    name: str,
    as_json: bool,  # noqa: FBT001
    **limits: int | str | None,
) -> None:
    """Create a key and print it; it is shown only once.

    With --local a project that does not exist is created.
    """
    with server() as client:

        def make() -> "NewKey":
            return client.keys.create(role=role, project=project, name=name, expires_days=expires, **_chosen(limits))

        try:
            made = make()
        except NotFound as missing:
            if project is None or role == Role.SUPER_ADMIN:
                raise
            if not is_local():  # with --local there may be no project yet, and no key that could create one
                raise click.ClickException(_no_project(client, project, missing)) from missing
            client.projects.create(project)
            click.echo(f"Created the project {project}.", err=True)
            made = make()
    _print_once(made, as_json=as_json)


@keys.command()
@click.argument("key_id")
@_limit_options
@json_option
def change(key_id: str, as_json: bool, **limits: int | str | None) -> None:  # noqa: FBT001
    """Change how much a key may ask of models; gateways follow within a second."""
    if not (chosen := _chosen(limits)):
        raise click.UsageError("nothing to change; name --requests-per-minute or --tokens-per-minute")
    with server() as client:
        changed = client.keys.change(key_id, **chosen)
    print_json(changed) if as_json else click.echo(key_id)


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
    with server() as client:
        made = client.keys.rotate(key_id, grace_seconds=grace)
    _print_once(made, as_json=as_json)


@keys.command()
@click.argument("key_id")
@json_option
def revoke(key_id: str, as_json: bool) -> None:  # noqa: FBT001
    """Revoke a key at once."""
    with server() as client:
        client.keys.revoke(key_id)
    print_json({"key_id": key_id, "revoked": True}) if as_json else click.echo(f"{key_id} revoked")


def _no_project(client: Client, name: str, missing: NotFound) -> str:
    """The error, the project that was probably meant, and how to create one."""
    known = [each["name"] for each in client.projects.list()]
    return f"{missing}{did_you_mean(name, known)}; create it with `trainyard projects create {name}`"


def _print_once(made: "NewKey", *, as_json: bool) -> None:
    printed = {name: value for name, value in made.items() if name in PRINTED}
    if as_json:
        print_json(printed)
        return
    print_fields(printed)
    click.echo("Store it now: it is not shown again.", err=True)


def _state(item: "Key") -> str:
    if item["revoked_at"]:
        return "revoked"
    if not item["expires_at"]:
        return "valid"
    over = datetime.fromisoformat(item["expires_at"]) <= datetime.now(UTC)
    return "expired" if over else f"until {item['expires_at'][:16]}"
