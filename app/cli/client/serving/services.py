"""The group `trainyard services`: what answers, with how many replicas, and the requests to a service."""

from itertools import islice

import click

from app.cli.choice import SuggestingChoice
from app.cli.client.serving import facts
from app.cli.connection import server
from app.cli.output import json_option, print_fields, print_json, print_table, printable
from app.domain.serving.states import ServiceState

STATES = [str(state) for state in ServiceState]


@click.group()
def services() -> None:
    """Models that answer requests: their replicas, load and history. SERVICE is a name or an id."""


@services.command("list")
@click.option(
    "--status", multiple=True, type=SuggestingChoice(STATES, case_sensitive=False), help="Default: all but ENDED."
)
@click.option("--project", default="", help="Only services of this project.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@json_option
def list_services(status: tuple[str, ...], project: str, limit: int, as_json: bool) -> None:  # noqa: FBT001
    """List services, newest first."""
    with server() as client:
        found = list(islice(client.services.list(status=status, project=project), limit))
    if as_json:
        print_json({"services": found})
    else:
        print_table(facts.HEADS, map(facts.row, found), empty="no services; start one with trainyard serve")


@services.command()
@click.argument("service")
@click.option("--all", "with_ended", is_flag=True, help="Also replicas that have ended.")
@json_option
def show(service: str, with_ended: bool, as_json: bool) -> None:  # noqa: FBT001
    """Show SERVICE with its replicas."""
    with server() as client:
        found = client.services.get(service)
        newest = list(islice(client.services.replicas(found["service_id"]), 100))
    copies = [each for each in newest if with_ended or not each["finished_at"]]
    if as_json:
        print_json({**found, "copies": copies})
        return
    print_fields(facts.fields(found))
    click.echo()
    heads = ("replica", "job", "revision", "state", "node", "answers since", "why not")
    print_table(heads, map(facts.replica_row, copies), empty="no replicas")


@services.command()
@click.argument("service")
@click.option("--min", "least", type=click.IntRange(min=0), help="Replicas that always run.")
@click.option("--max", "most", type=click.IntRange(min=1), help="Most replicas.")
@json_option
def scale(service: str, least: int | None, most: int | None, as_json: bool) -> None:  # noqa: FBT001
    """Change how many replicas SERVICE may have."""
    if least is None and most is None:
        raise click.UsageError("say --min, --max or both")
    with server() as client:
        found = client.services.scale(service, min=least, max=most)
    print_json(found) if as_json else click.echo(f"{found['name']} {facts.replicas(found)}")


@services.command()
@click.argument("service")
def pause(service: str) -> None:
    """Let the replicas of SERVICE finish and end; requests are refused until it is resumed."""
    with server() as client:
        found = client.services.pause(service)
    click.echo(f"{found['name']} {found['status']}")


@services.command()
@click.argument("service")
def resume(service: str) -> None:
    """Let a paused SERVICE answer again."""
    with server() as client:
        found = client.services.resume(service)
    click.echo(f"{found['name']} {found['status']}")


@services.command()
@click.argument("service")
def delete(service: str) -> None:
    """End SERVICE: its replicas finish the requests that they have."""
    with server() as client:
        client.services.delete(service)
    click.echo(f"{service} is ending")


@services.command()
@click.argument("service")
@json_option
def events(service: str, as_json: bool) -> None:  # noqa: FBT001
    """Show the history of SERVICE, oldest first."""
    with server() as client:
        found = list(client.services.events(service))
    if as_json:
        print_json({"events": found})
        return
    rows = [(each["at"], each["type"], each["actor"], each["message"]) for each in found]
    print_table(("at", "event", "by", "message"), rows, empty="no events")


@services.command()
@click.argument("service")
@click.option("--tail", type=click.IntRange(1, 10_000), default=200, show_default=True, help="Last lines.")
@click.option("--replica", type=click.IntRange(min=0), help="Its number; default the newest that has started.")
def logs(service: str, tail: int, replica: int | None) -> None:
    """Print the last log lines of a replica of SERVICE."""
    with server() as client:
        for line in client.services.logs(service, tail=tail, replica=replica):
            click.echo(printable(line["line"]))
