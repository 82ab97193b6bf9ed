"""`trainyard projects`: projects, which own jobs, keys and webhooks."""

import click

from app.cli.admin.columns import picked
from app.cli.admin.project_quotas import NONE, quota
from app.cli.choice import SuggestingChoice
from app.cli.connection import ServerGroup, server
from app.cli.output import json_option, print_fields, print_json, print_table
from app.cli.text_options import checked_name, checked_text
from app.domain.administration import AUTO_SERVICES, CLAIM_RIGHTS, IMAGE_DIGESTS, LONGEST_DESCRIPTION
from app.domain.interactive import SWITCHES
from app.domain.names import WORD, WORD_RULE
from app.domain.spec.locations.egress import SERVICE, SERVICE_RULE
from app.domain.spec.locations.images import SOURCE, SOURCE_RULE
from trainyard.client import Conflict

_ALL = "all"  # in place of a list of registries


def _services(_: click.Context, option: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """Checks an option that names services."""
    for value in values:
        if not SERVICE.fullmatch(value):
            raise click.BadParameter(f"{value!r}: {SERVICE_RULE}", param=option)
    return values


def _capabilities(_: click.Context, option: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """Checks an option that names capabilities, or none."""
    for value in values:
        if not WORD.fullmatch(value):
            raise click.BadParameter(f"{value!r}: {WORD_RULE}", param=option)
    if NONE in values and len(values) > 1:
        raise click.BadParameter(f"{NONE} demands nothing; name it alone", param=option)
    return values


def _sources(_: click.Context, option: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """Checks an option that names registries or parts of them, or all."""
    for value in values:
        if value != _ALL and not SOURCE.fullmatch(value):
            raise click.BadParameter(f"{value!r}: {SOURCE_RULE}", param=option)
    if _ALL in values and len(values) > 1:
        raise click.BadParameter(f"{_ALL} limits nothing; name it alone", param=option)
    return values


@click.group(cls=ServerGroup)
def projects() -> None:
    """Show projects that your key sees; with a super admin's key create, change and delete them."""


projects.add_command(quota)


@projects.command("list")
@json_option
def list_projects(as_json: bool) -> None:  # noqa: FBT001
    """List every project, newest first."""
    with server() as client:
        items = list(client.projects.list())
    if as_json:
        print_json({"projects": items, "total_count": len(items)})
        return
    names = ("name", "description", "created_at")
    print_table(("name", "description", "created"), picked(items, names), empty="no projects")


@projects.command()
@click.argument("name")
@json_option
def show(name: str, as_json: bool) -> None:  # noqa: FBT001
    """Show a project, its quota and its usage."""
    with server() as client:
        item = client.projects.get(name)
    print_json(item) if as_json else print_fields(item)


@projects.command()
@click.argument("name", callback=checked_name)
@json_option
def create(name: str, as_json: bool) -> None:  # noqa: FBT001
    """Create a project; an existing one is left as it is."""
    with server() as client:
        try:
            item = client.projects.create(name)
        except Conflict:
            item = client.projects.get(name)
    print_json(item) if as_json else click.echo(name)


@projects.command()
@click.argument("name")
@click.option("--add", "added", multiple=True, callback=_services, help="Allow HOST:PORT or *.DOMAIN:PORT.")
@click.option("--remove", "removed", multiple=True, callback=_services, help="No longer allow it.")
@json_option
def egress(name: str, added: tuple[str, ...], removed: tuple[str, ...], as_json: bool) -> None:  # noqa: FBT001
    """Change and show the services that jobs of the project NAME may connect to, with resource_config.network gate."""
    with server() as client:
        if added or removed:
            listed = client.projects.change_egress(name, add=added, remove=removed)["egress"]
        else:
            listed = client.projects.get(name)["egress"]
    if as_json:
        print_json({"egress": listed})
    else:
        click.echo("\n".join(listed) if listed else "no services: jobs reach nothing")


@projects.command()
@click.argument("name")
@click.option("--description", callback=checked_text(LONGEST_DESCRIPTION), help="The new description.")
@click.option(
    "--sessions",
    type=SuggestingChoice(SWITCHES),
    help="Whether people may open shells, commands and ports of its running jobs; recorded: what they show is kept.",
)
@click.option(
    "--claims",
    type=SuggestingChoice(CLAIM_RIGHTS),
    help="Whether its jobs may create volume claims, or only use existing ones.",
)
@click.option(
    "--auto-services",
    type=SuggestingChoice(AUTO_SERVICES),
    help="Whether the first request for a model without a service makes one; default: as the gateways' settings say.",
)
@click.option(
    "--image-source",
    "image_sources",
    multiple=True,
    callback=_sources,
    metavar="HOST[/PATH]",
    help="Whose images its jobs may use, and local for those of storage roots; in place of the list before. all: any.",
)
@click.option(
    "--image-digests",
    type=SuggestingChoice(IMAGE_DIGESTS),
    help="Whether its jobs name images of registries with their digest.",
)
@click.option(
    "--require",
    "required",
    multiple=True,
    callback=_capabilities,
    metavar="CAPABILITY",
    help="What nodes of its jobs must have, such as sandbox:full; in place of what it demanded before. none: nothing.",
)
@json_option
def change(  # noqa: PLR0913  a project has this many fields
    name: str,
    *,
    description: str | None,
    sessions: str | None,
    claims: str | None,
    auto_services: str | None,
    image_sources: tuple[str, ...],
    image_digests: str | None,
    required: tuple[str, ...],
    as_json: bool,
) -> None:
    """Change a project's description, what its jobs may do, or what nodes of its jobs must have.

    A demand counts for submissions and for jobs that wait; running jobs continue.
    """
    given = (description, sessions, claims, auto_services, image_digests)
    if not required and not image_sources and all(value is None for value in given):
        raise click.UsageError(
            "nothing to change; name --description, --sessions, --claims, --auto-services, --image-source, "
            "--image-digests or --require"
        )
    demands = [each for each in required if each != NONE] if required else None
    with server() as client:
        item = client.projects.change(
            name,
            description=description,
            sessions=sessions,
            claims=claims,
            auto_services=auto_services,
            image_sources=[each for each in image_sources if each != _ALL] if image_sources else None,
            image_digests=image_digests,
            required_capabilities=demands,
        )
    print_json(item) if as_json else click.echo(name)


@projects.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@json_option
def delete(name: str, yes: bool, as_json: bool) -> None:  # noqa: FBT001
    """Delete a project that has no jobs, with its keys and webhooks."""
    if not yes:
        click.confirm(f"Delete the project {name} with all of its keys and webhooks?", abort=True, err=True)
    with server() as client:
        client.projects.delete(name)
    print_json({"name": name, "deleted": True}) if as_json else click.echo(f"{name} deleted")
