"""Webhook subscriptions of a project: creating, listing, changing and deleting."""

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.database.engine import Database
from app.domain.errors import NotFound, QuotaExceeded
from app.domain.ids import new_id
from app.domain.webhook_messages import PLAIN_FORMAT
from app.domain.webhooks import check_url
from app.models import Project, Webhook
from app.security.permissions import Caller
from app.security.secrets import SecretBox
from app.services.access import projects
from app.services.lifecycle import audit
from app.services.requests.idempotency import OnWritten, not_stored
from app.services.requests.pagination import Orders, Page, PageRequest, page_of

ORDERS: Orders = {"created_at": (Webhook.created_at, Webhook.id)}


@dataclass(frozen=True, kw_only=True)
class WebhookRules:
    """The operator's rules: permitted private hosts, and the maximum number of webhooks per project."""

    allow: tuple[str, ...] = ()
    max_per_project: int = 20


@dataclass(frozen=True, kw_only=True)
class WantedWebhook:
    """A requested webhook; the project defaults to the caller's own, and a missing secret is generated."""

    url: str
    description: str = ""
    event_types: tuple[str, ...] = ()
    format: str = PLAIN_FORMAT
    secret: str | None = None
    is_active: bool = True
    project: str | None = None


@dataclass(frozen=True, kw_only=True)
class NewWebhook:
    """The row, and the secret, which is shown only once."""

    row: Webhook
    secret: str


class Webhooks:
    """The use cases; each is one transaction with an audit log entry."""

    def __init__(self, db: Database, box: SecretBox, rules: WebhookRules) -> None:
        self._db = db
        self._box = box
        self._rules = rules

    def create(self, caller: Caller, wanted: WantedWebhook, *, on_written: OnWritten = not_stored) -> NewWebhook:
        """Create a webhook. Raises BadSpec for an invalid or forbidden URL, QuotaExceeded above the limit."""
        check_url(wanted.url, self._rules.allow, field="url")
        project = wanted.project or caller.home_project
        secret = wanted.secret or f"whsec_{secrets.token_urlsafe(32)}"
        with self._db.write() as session:
            projects.visible(session, caller, project)
            self._refuse_more(session, project)
            row = Webhook(
                id=new_id("whk"),
                project=project,
                url=wanted.url,
                description=wanted.description,
                event_types=_sorted(wanted.event_types),
                format=wanted.format,
                sealed_secret=self._box.seal({"secret": secret}),
                is_active=wanted.is_active,
                created_by=caller.actor,
            )
            session.add(row)
            session.flush()
            _note(session, caller, row, "webhook.create", host=_host(row))
            new = NewWebhook(row=row, secret=secret)
            on_written(session, new)
        return new

    def change(self, caller: Caller, webhook_id: str, changes: Mapping[str, Any]) -> Webhook:
        """Change the given fields; a new URL or secret, or enabling it, ends the backoff."""
        if "url" in changes:
            check_url(changes["url"], self._rules.allow, field="url")
        with self._db.write() as session:
            row = find(session, caller, webhook_id)
            for name in ("url", "description", "format", "is_active"):
                if name in changes:
                    setattr(row, name, changes[name])
            if "event_types" in changes:
                row.event_types = _sorted(changes["event_types"])
            if "secret" in changes:
                row.sealed_secret = self._box.seal({"secret": changes["secret"]})
            if changes.keys() & {"url", "is_active", "secret"}:
                reset_backoff(row)
            _note(session, caller, row, "webhook.patch", changed=sorted(changes))
        return row

    def delete(self, caller: Caller, webhook_id: str) -> None:
        """Delete a webhook with its pending deliveries."""
        with self._db.write() as session:
            row = find(session, caller, webhook_id)
            _note(session, caller, row, "webhook.delete", host=_host(row))
            session.delete(row)

    def _refuse_more(self, session: Session, project: str) -> None:
        # Locked, so that concurrent requests cannot exceed the limit.
        if session.get(Project, project, with_for_update={"key_share": True}) is None:
            raise NotFound(f"no project {project}")
        count = session.scalar(select(func.count()).select_from(Webhook).where(Webhook.project == project)) or 0
        if count >= self._rules.max_per_project:
            raise QuotaExceeded(
                f"the project {project} has {count} webhooks, the most that TRAINYARD_WEBHOOK_MAX_PER_PROJECT allows; "
                "delete one first",
                retry_after_seconds=60,
            )


def page(session: Session, caller: Caller, request: PageRequest, *, project: str | None = None) -> Page[Webhook]:
    query = select(Webhook)
    if project is not None:
        projects.visible(session, caller, project)
    wanted = project or caller.project
    if wanted is not None:
        query = query.where(Webhook.project == wanted)
    return page_of(session, query, ORDERS, request)


def find(session: Session, caller: Caller, webhook_id: str) -> Webhook:
    """The webhook. Raises the same NotFound for a missing and a foreign one."""
    row = session.get(Webhook, webhook_id)
    missing = f"no webhook {webhook_id[:64]}"
    if row is None:
        raise NotFound(missing)
    caller.require_sight(row.project, missing)
    return row


def reset_backoff(row: Webhook) -> None:
    """End the backoff after failures, so that deliveries are retried at once."""
    row.failures, row.rests_until = 0, None


def _host(row: Webhook) -> str:
    """The URL's host; the rest may contain the receiver's secrets."""
    return urlsplit(row.url).hostname or ""


def _sorted(event_types: Iterable[str]) -> list[str]:
    return sorted(set(event_types))


def _note(session: Session, caller: Caller, row: Webhook, action: str, **data: Any) -> None:
    audit.record(session, actor=caller.actor, action=action, project=row.project, target=row.id, data=data)
