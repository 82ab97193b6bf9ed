"""`trainyard webhooks`: subscriptions to a project's events."""

from typing import TYPE_CHECKING

import click

from app.cli.admin.columns import picked
from app.cli.choice import SuggestingChoice
from app.cli.connection import ServerGroup, server
from app.cli.output import age, json_option, print_fields, print_json, print_table
from app.cli.text_options import checked_name
from app.domain.names import DEFAULT_PROJECT
from app.domain.webhook_messages import EMAIL_FORMAT, PLAIN_FORMAT, WEBHOOK_FORMATS
from app.domain.webhooks import DELIVERY_STATES, EVENT_NAMES

if TYPE_CHECKING:
    from trainyard.records import Webhook


@click.group(cls=ServerGroup)
def webhooks() -> None:
    """Manage webhooks, which tell URLs or people by email of a project's events, with any key of the project that may
    submit jobs.
    """


@webhooks.command("list")
@click.option("--project", callback=checked_name, help="Only webhooks of this project.")
@json_option
def list_webhooks(project: str | None, as_json: bool) -> None:  # noqa: FBT001
    """List every webhook, without its secret, newest first."""
    with server() as client:
        items = list(client.webhooks.list(project=project or ""))
    if as_json:
        print_json({"webhooks": items, "total_count": len(items)})
        return
    rows = [
        {
            **item,
            "receiver": item["url"] or item.get("recipients", []),
            "events": item["event_types"] or "all",
            "state": _state(item),
        }
        for item in items
    ]
    names = ("webhook_id", "project", "receiver", "events", "state")
    print_table(("id", "project", "receiver", "events", "state"), picked(rows, names), empty="no webhooks")


@webhooks.command()
@click.argument("webhook_id")
@json_option
def show(webhook_id: str, as_json: bool) -> None:  # noqa: FBT001
    """Show a webhook."""
    with server() as client:
        item = client.webhooks.get(webhook_id)
    print_json(item) if as_json else print_fields(item)


@webhooks.command()
@click.argument("url", required=False)
@click.option(
    "--recipient",
    "recipients",
    multiple=True,
    metavar="ADDRESS",
    help="Send emails to this address instead of posts to a URL; repeatable.",
)
@click.option("--project", callback=checked_name, help=f"Its project.  [your key's own, or {DEFAULT_PROJECT}]")
@click.option(
    "--event",
    "events",
    multiple=True,
    metavar="NAME",
    type=SuggestingChoice(EVENT_NAMES),
    help="An event type or job state; repeatable.  [all]",
)
@click.option("--description", default="", help="A description to show in lists.")
@click.option(
    "--format",
    "form",
    type=SuggestingChoice(WEBHOOK_FORMATS),
    help="The event itself, a message for an incoming webhook of Slack or Teams, or an email.  "
    f"[{PLAIN_FORMAT}; with recipients {EMAIL_FORMAT}]",
)
@json_option
def create(
    *,
    url: str | None,
    recipients: tuple[str, ...],
    project: str | None,
    events: tuple[str, ...],
    description: str,
    form: str | None,
    as_json: bool,
) -> None:
    """Create a webhook and print its secret; it is shown only once. Emails have none."""
    if not url and not recipients:
        raise click.UsageError("name the URL that events are posted to, or --recipient for emails")
    with server() as client:
        item = client.webhooks.create(
            url,
            recipients=list(recipients) or None,
            event_types=events,
            description=description,
            format=form or (EMAIL_FORMAT if recipients else PLAIN_FORMAT),
            project=project,
        )
    if as_json:
        print_json(item)
        return
    print_fields(item)
    if item["secret"]:
        click.echo("Store the secret now: it is not shown again.", err=True)


@webhooks.command()
@click.argument("webhook_id")
@json_option
def enable(webhook_id: str, as_json: bool) -> None:  # noqa: FBT001
    """Enable a webhook; pending deliveries are retried at once, even if it was enabled."""
    _switch(webhook_id, on=True, as_json=as_json)


@webhooks.command()
@click.argument("webhook_id")
@json_option
def disable(webhook_id: str, as_json: bool) -> None:  # noqa: FBT001
    """Disable a webhook: events that happen meanwhile are not delivered."""
    _switch(webhook_id, on=False, as_json=as_json)


@webhooks.command()
@click.argument("webhook_id")
@json_option
def delete(webhook_id: str, as_json: bool) -> None:  # noqa: FBT001
    """Delete a webhook and its pending deliveries."""
    with server() as client:
        client.webhooks.delete(webhook_id)
    print_json({"webhook_id": webhook_id, "deleted": True}) if as_json else click.echo(f"{webhook_id} deleted")


@webhooks.command()
@click.argument("webhook_id")
@json_option
def test(webhook_id: str, as_json: bool) -> None:  # noqa: FBT001
    """Send a test event; `deliveries` shows the result."""
    with server() as client:
        item = client.webhooks.test(webhook_id)
    print_json(item) if as_json else click.echo(item["delivery_id"])


@webhooks.command()
@click.argument("webhook_id")
@click.argument("delivery_id")
@json_option
def redeliver(webhook_id: str, delivery_id: str, as_json: bool) -> None:  # noqa: FBT001
    """Send a delivery again."""
    with server() as client:
        item = client.webhooks.redeliver(webhook_id, delivery_id)
    print_json(item) if as_json else click.echo(item["delivery_id"])


@webhooks.command()
@click.argument("webhook_id")
@click.argument("delivery_id", required=False)
@click.option("--state", type=SuggestingChoice(DELIVERY_STATES), help="Only deliveries in this state.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@json_option
def deliveries(webhook_id: str, delivery_id: str | None, state: str | None, limit: int, as_json: bool) -> None:  # noqa: FBT001
    """List deliveries, newest first, or show one with its payload."""
    with server() as client:
        if delivery_id is not None:
            item = client.webhooks.delivery(webhook_id, delivery_id)
            print_json(item) if as_json else print_fields(item)
            return
        items, total = client.webhooks.newest_deliveries(webhook_id, limit, state=state or "")
    if as_json:
        print_json({"deliveries": items, "total_count": total})
        return
    rows = [{**item, "age": age(item["created_at"])} for item in items]
    names = ("delivery_id", "event_type", "state", "tries", "status_code", "age", "problem")
    print_table(
        ("id", "event", "state", "tries", "answer", "age", "problem"), picked(rows, names), empty="no deliveries"
    )


def _switch(webhook_id: str, *, on: bool, as_json: bool) -> None:
    with server() as client:
        item = client.webhooks.change(webhook_id, is_active=on)
    print_json(item) if as_json else click.echo(f"{webhook_id} {_state(item)}")


def _state(item: "Webhook") -> str:
    if not item["is_active"]:
        return "off"
    return f"failed {item['failures']} times in a row" if item["failures"] else "on"
