"""`trainyard webhooks`: subscriptions to a project's events, in the database."""

from typing import TYPE_CHECKING, Any

import click

from app.cli.admin.administrator import ADMINISTRATOR, newest, picked
from app.cli.admin.database import admin_database, cli_settings
from app.cli.output import age, json_option, print_fields, print_json, print_table
from app.cli.text_options import checked_name
from app.domain.names import DEFAULT_PROJECT
from app.domain.webhooks import EVENT_NAMES
from app.schemas.webhooks import STATES

if TYPE_CHECKING:
    from app.database.engine import Database
    from app.services.webhooks.subscriptions import Webhooks


MAX_WEBHOOKS = 10_000


@click.group()
def webhooks() -> None:
    """Manage webhooks, in the database: URLs that receive a project's events."""


@webhooks.command("list")
@click.option("--project", callback=checked_name, help="Only webhooks of this project.")
@json_option
def list_webhooks(project: str | None, as_json: bool) -> None:  # noqa: FBT001
    """List every webhook, without its secret."""
    from app.schemas.webhooks import WebhookSchema
    from app.services.webhooks import subscriptions as services

    with admin_database() as db, db.read() as session:
        page = services.page(session, ADMINISTRATOR, newest(MAX_WEBHOOKS), project=project)
        items = WebhookSchema(many=True).dump(page.items)
    if as_json:
        print_json({"webhooks": items, "total_count": len(items)})
        return
    rows = [{**item, "events": item["event_types"] or "all", "state": _state(item)} for item in items]
    names = ("webhook_id", "project", "url", "events", "state")
    print_table(("id", "project", "url", "events", "state"), picked(rows, names), empty="no webhooks")


@webhooks.command()
@click.argument("webhook_id")
@json_option
def show(webhook_id: str, as_json: bool) -> None:  # noqa: FBT001
    """Show a webhook."""
    from app.schemas.webhooks import WebhookSchema
    from app.services.webhooks import subscriptions as services

    with admin_database() as db, db.read() as session:
        item = WebhookSchema().dump(services.find(session, ADMINISTRATOR, webhook_id))
    print_json(item) if as_json else print_fields(item)


@webhooks.command()
@click.argument("url")
@click.option("--project", callback=checked_name, default=DEFAULT_PROJECT, show_default=True)
@click.option(
    "--event",
    "events",
    multiple=True,
    metavar="NAME",
    type=click.Choice(EVENT_NAMES),
    help="An event type or job state; repeatable.  [all]",
)
@click.option("--description", default="", help="A description to show in lists.")
@json_option
def create(url: str, project: str, events: tuple[str, ...], description: str, as_json: bool) -> None:  # noqa: FBT001
    """Create a webhook and print its secret; it is shown only once."""
    from app.schemas.webhooks import NewWebhookSchema
    from app.services.webhooks.subscriptions import WantedWebhook

    with admin_database() as db:
        wanted = WantedWebhook(url=url, project=project, event_types=events, description=description)
        item = NewWebhookSchema().dump(_use_cases(db).create(ADMINISTRATOR, wanted))
    if as_json:
        print_json(item)
        return
    print_fields(item)
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
    with admin_database() as db:
        _use_cases(db).delete(ADMINISTRATOR, webhook_id)
    print_json({"webhook_id": webhook_id, "deleted": True}) if as_json else click.echo(f"{webhook_id} deleted")


@webhooks.command()
@click.argument("webhook_id")
@json_option
def test(webhook_id: str, as_json: bool) -> None:  # noqa: FBT001
    """Send a test event; `deliveries` shows the result."""
    from app.schemas.webhooks import DeliverySchema
    from app.services.webhooks import deliveries as webhook_deliveries

    with admin_database() as db:
        item = DeliverySchema().dump(webhook_deliveries.send_test(db, ADMINISTRATOR, webhook_id))
    print_json(item) if as_json else click.echo(item["delivery_id"])


@webhooks.command()
@click.argument("webhook_id")
@click.argument("delivery_id")
@json_option
def redeliver(webhook_id: str, delivery_id: str, as_json: bool) -> None:  # noqa: FBT001
    """Send a delivery again."""
    from app.schemas.webhooks import DeliverySchema
    from app.services.webhooks import deliveries as webhook_deliveries

    with admin_database() as db:
        item = DeliverySchema().dump(webhook_deliveries.redeliver(db, ADMINISTRATOR, webhook_id, delivery_id))
    print_json(item) if as_json else click.echo(item["delivery_id"])


@webhooks.command()
@click.argument("webhook_id")
@click.argument("delivery_id", required=False)
@click.option("--state", type=click.Choice(STATES), help="Only deliveries in this state.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@json_option
def deliveries(webhook_id: str, delivery_id: str | None, state: str | None, limit: int, as_json: bool) -> None:  # noqa: FBT001
    """List deliveries, newest first, or show one with its payload."""
    from app.schemas.webhooks import DeliverySchema, DeliveryWithPayloadSchema
    from app.services.webhooks import deliveries as webhook_deliveries
    from app.services.webhooks import subscriptions as services

    with admin_database() as db, db.read() as session:
        if delivery_id is not None:
            row = webhook_deliveries.find(session, ADMINISTRATOR, webhook_id, delivery_id)
            item = DeliveryWithPayloadSchema().dump(row)
            print_json(item) if as_json else print_fields(item)
            return
        hook = services.find(session, ADMINISTRATOR, webhook_id)
        page = webhook_deliveries.page(session, hook.id, newest(limit), state=state)
        items = DeliverySchema(many=True).dump(page.items)
    if as_json:
        print_json({"deliveries": items, "total_count": page.total_count})
        return
    rows = [{**item, "age": age(item["created_at"])} for item in items]
    names = ("delivery_id", "event_type", "state", "tries", "status_code", "age", "problem")
    print_table(
        ("id", "event", "state", "tries", "answer", "age", "problem"), picked(rows, names), empty="no deliveries"
    )


def _switch(webhook_id: str, *, on: bool, as_json: bool) -> None:
    from app.schemas.webhooks import WebhookSchema

    with admin_database() as db:
        item = WebhookSchema().dump(_use_cases(db).change(ADMINISTRATOR, webhook_id, {"is_active": on}))
    print_json(item) if as_json else click.echo(f"{webhook_id} {_state(item)}")


def _use_cases(db: "Database") -> "Webhooks":
    from app.security.secrets import SecretBox
    from app.services.webhooks.subscriptions import WebhookRules, Webhooks

    settings = cli_settings()
    rules = WebhookRules(allow=settings.webhook.allow, max_per_project=settings.webhook.max_per_project)
    return Webhooks(db, SecretBox(settings.security.secret_key), rules)


def _state(item: dict[str, Any]) -> str:
    if not item["is_active"]:
        return "off"
    return f"failed {item['failures']} times in a row" if item["failures"] else "on"
