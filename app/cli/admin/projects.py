"""`trainyard projects`: projects, which own jobs, keys and webhooks, in the database."""

import click

from app.cli.admin.administrator import ADMINISTRATOR, newest, picked
from app.cli.admin.database import admin_database, cli_settings
from app.cli.admin.project_quotas import quota
from app.cli.output import json_option, print_fields, print_json, print_table
from app.cli.text_options import checked_name, checked_text
from app.domain.spec.locations.egress import MOST_SERVICES, SERVICE, SERVICE_RULE

MAX_PROJECTS = 10_000
MAX_DESCRIPTION_LENGTH = 255


def _services(_: click.Context, option: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """Checks an option that names services."""
    for value in values:
        if not SERVICE.fullmatch(value):
            raise click.BadParameter(f"{value!r}: {SERVICE_RULE}", param=option)
    return values


@click.group()
def projects() -> None:
    """Manage projects, in the database."""


projects.add_command(quota)


@projects.command("list")
@json_option
def list_projects(as_json: bool) -> None:  # noqa: FBT001
    """List every project."""
    from app.schemas.projects import ProjectSchema
    from app.services.access import projects as services

    with admin_database() as db, db.read() as session:
        items = ProjectSchema(many=True).dump(services.page(session, ADMINISTRATOR, newest(MAX_PROJECTS)).items)
    if as_json:
        print_json({"projects": items, "total_count": len(items)})
        return
    names = ("name", "description", "created_at")
    print_table(("name", "description", "created"), picked(items, names), empty="no projects")


@projects.command()
@click.argument("name")
@json_option
def show(name: str, as_json: bool) -> None:  # noqa: FBT001
    """Show a project."""
    from app.schemas.projects import ProjectSchema
    from app.services.access import projects as services

    with admin_database() as db, db.read() as session:
        item = ProjectSchema().dump(services.require(session, name))
    print_json(item) if as_json else print_fields(item)


@projects.command()
@click.argument("name", callback=checked_name)
@json_option
def create(name: str, as_json: bool) -> None:  # noqa: FBT001
    """Create a project; an existing one is left as it is."""
    from app.schemas.projects import ProjectSchema
    from app.services.access import projects as services

    with admin_database() as db, db.write() as session:
        item = ProjectSchema().dump(services.ensure(session, name, actor=ADMINISTRATOR.actor))
    print_json(item) if as_json else click.echo(name)


@projects.command()
@click.argument("name")
@click.option("--add", "added", multiple=True, callback=_services, help="Allow HOST:PORT or *.DOMAIN:PORT.")
@click.option("--remove", "removed", multiple=True, callback=_services, help="No longer allow it.")
@json_option
def egress(name: str, added: tuple[str, ...], removed: tuple[str, ...], as_json: bool) -> None:  # noqa: FBT001
    """Change and show the services that jobs of the project NAME may connect to, with resource_config.network gate."""
    from app.services.access import projects as services

    with admin_database() as db:
        with db.read() as session:
            listed = services.require(session, name).egress
        wanted = [each for each in dict.fromkeys((*listed, *added)) if each not in removed]
        if len(wanted) > MOST_SERVICES:
            raise click.UsageError(f"a project has at most {MOST_SERVICES} services; use *.DOMAIN:PORT for several")
        if wanted != listed:
            services.change(db, ADMINISTRATOR, name, {"egress": wanted})
    if as_json:
        print_json({"egress": wanted})
    else:
        click.echo("\n".join(wanted) if wanted else "no services: jobs reach nothing")


@projects.command()
@click.argument("name")
@click.option(
    "--description", required=True, callback=checked_text(MAX_DESCRIPTION_LENGTH), help="The new description."
)
@json_option
def change(name: str, description: str, as_json: bool) -> None:  # noqa: FBT001
    """Change a project's description."""
    from app.schemas.projects import ProjectSchema
    from app.services.access import projects as services

    with admin_database() as db:
        item = ProjectSchema().dump(services.change(db, ADMINISTRATOR, name, {"description": description}))
    print_json(item) if as_json else click.echo(name)


@projects.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@json_option
def delete(name: str, yes: bool, as_json: bool) -> None:  # noqa: FBT001
    """Delete a project that has no jobs, with its keys and webhooks."""
    from app.services.access import projects as services
    from app.storage.storage import Storage

    if not yes:
        click.confirm(f"Delete the project {name} with all of its keys and webhooks?", abort=True, err=True)
    with admin_database() as db:
        services.delete(db, Storage(cli_settings().storage.url), ADMINISTRATOR, name)
    print_json({"name": name, "deleted": True}) if as_json else click.echo(f"{name} deleted")
