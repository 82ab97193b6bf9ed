"""Webhook subscriptions of a project: creating, listing, changing and deleting."""

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.database.engine import Database
from app.domain.errors import BadSpec, NotFound, QuotaExceeded
from app.domain.ids import new_id
from app.domain.webhook_messages import EMAIL_FORMAT, PLAIN_FORMAT
from app.domain.webhooks import check_recipients, check_url
from app.models import Project, Webhook
from app.security.permissions import Caller
from app.security.secrets import SecretBox
from app.services.access import projects
from app.services.lifecycle import audit
from app.services.requests.idempotency import OnWritten, not_stored
from app.services.requests.pagination import Orders, Page, PageRequest, page_of
from app.services.webhooks.smtp_mail import HOST_SETTING
from config.settings import Settings

ORDERS: Orders = {"created_at": (Webhook.created_at, Webhook.id)}
# Fields of webhooks that post, and of those that send emails, with what is wrong about them in one of the other kind.
_OF_URLS, _OF_EMAILS = frozenset({"url", "secret"}), frozenset({"recipients"})
_FOREIGN = {
    "url": "emails go to `recipients`; leave the url out",
    "secret": "emails are not signed; leave the secret out",
    "recipients": "only `format: email` has recipients; leave them out, or choose that format and leave the url out",
}


@dataclass(frozen=True, kw_only=True)
class WebhookRules:
    """The operator's rules: permitted private hosts, the maximum number of webhooks per project, and the domains that
    emails may be sent to; none where there is no mail server.
    """

    allow: tuple[str, ...] = ()
    max_per_project: int = 20
    mail_domains: tuple[str, ...] = ()

    @classmethod
    def of(cls, settings: Settings) -> Self:
        domains = settings.smtp.allowed_domains if settings.smtp.host else ()
        own = settings.webhook
        return cls(allow=own.allow, max_per_project=own.max_per_project, mail_domains=domains)


@dataclass(frozen=True, kw_only=True)
class WantedWebhook:
    """A requested webhook; the project defaults to the caller's own, and a missing secret is generated.

    One with the format email has recipients, and neither URL nor secret.
    """

    url: str = ""
    recipients: tuple[str, ...] = ()
    description: str = ""
    event_types: tuple[str, ...] = ()
    format: str = PLAIN_FORMAT
    secret: str | None = None
    is_active: bool = True
    project: str | None = None


@dataclass(frozen=True, kw_only=True)
class NewWebhook:
    """The row, and the secret, which is shown only once; empty: it sends emails, which are not signed."""

    row: Webhook
    secret: str


class Webhooks:
    """The use cases; each is one transaction with an audit log entry."""

    def __init__(self, db: Database, box: SecretBox, rules: WebhookRules) -> None:
        self._db = db
        self._box = box
        self._rules = rules

    def create(self, caller: Caller, wanted: WantedWebhook, *, on_written: OnWritten = not_stored) -> NewWebhook:
        """Create a webhook.

        Raises BadSpec for an invalid or forbidden URL or recipient, QuotaExceeded above the limit.
        """
        given = {name for name in _OF_URLS | _OF_EMAILS if getattr(wanted, name)}
        self._check(wanted.format, {name: getattr(wanted, name) for name in given})
        project = wanted.project or caller.home_project
        secret = wanted.secret or f"whsec_{secrets.token_urlsafe(32)}" if wanted.format != EMAIL_FORMAT else ""
        with self._db.write() as session:
            projects.visible(session, caller, project)
            self._refuse_more(session, project)
            row = Webhook(
                id=new_id("whk"),
                project=project,
                url=wanted.url,
                recipients=list(wanted.recipients),
                description=wanted.description,
                event_types=_sorted(wanted.event_types),
                format=wanted.format,
                sealed_secret=self._box.seal({"secret": secret}) if secret else "",
                is_active=wanted.is_active,
                created_by=caller.actor,
            )
            session.add(row)
            session.flush()
            _note(session, caller, row, "webhook.create", **_place(row))
            new = NewWebhook(row=row, secret=secret)
            on_written(session, new)
        return new

    def change(self, caller: Caller, webhook_id: str, changes: Mapping[str, Any]) -> Webhook:
        """Change the given fields; a new URL, secret or recipient, or enabling it, ends the backoff.

        Raises BadSpec for an invalid or forbidden URL or recipient, and where emails would become posts or the other
        way around.
        """
        with self._db.write() as session:
            row = find(session, caller, webhook_id)
            _refuse_other_kind(row, changes.get("format", row.format))
            self._check(row.format, changes)
            before = list(row.recipients)
            for name in ("url", "recipients", "description", "format", "is_active"):
                if name in changes:
                    setattr(row, name, changes[name])
            if "event_types" in changes:
                row.event_types = _sorted(changes["event_types"])
            if "secret" in changes:
                row.sealed_secret = self._box.seal({"secret": changes["secret"]})
            if changes.keys() & {"url", "recipients", "is_active", "secret"}:
                reset_backoff(row)
            moved = {"recipients": {"before": before, "after": row.recipients}} if "recipients" in changes else {}
            _note(session, caller, row, "webhook.patch", changed=sorted(changes), **moved)
        return row

    def delete(self, caller: Caller, webhook_id: str) -> None:
        """Delete a webhook with its pending deliveries."""
        with self._db.write() as session:
            row = find(session, caller, webhook_id)
            _note(session, caller, row, "webhook.delete", **_place(row))
            session.delete(row)

    def _check(self, form: str, given: Mapping[str, Any]) -> None:
        """Refuse fields that the format has no use for, and bad places to send to."""
        foreign = sorted(given.keys() & (_OF_URLS if form == EMAIL_FORMAT else _OF_EMAILS))
        if foreign:
            raise BadSpec(_FOREIGN[foreign[0]], field=foreign[0])
        if "url" in given:
            check_url(given["url"], self._rules.allow, field="url")
        if "recipients" in given:
            if not self._rules.mail_domains:
                raise BadSpec(
                    f"this installation sends no emails: the administrator has set no mail server in {HOST_SETTING}; "
                    "let a receiver of your own, slack or teams tell of events",
                    field="format",
                )
            check_recipients(given["recipients"], self._rules.mail_domains, field="recipients")

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


def _refuse_other_kind(row: Webhook, form: str) -> None:
    if (form == EMAIL_FORMAT) != (row.format == EMAIL_FORMAT):
        raise BadSpec(
            f"the webhook's format is {row.format}, which can't become {form}: emails have recipients, and the others "
            "a URL; create a new webhook and delete this one",
            field="format",
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


def _place(row: Webhook) -> dict[str, Any]:
    """Where it sends to: of a URL only the host, the rest may contain the receiver's secrets."""
    if row.format == EMAIL_FORMAT:
        return {"recipients": row.recipients}
    return {"host": urlsplit(row.url).hostname or ""}


def _sorted(event_types: Iterable[str]) -> list[str]:
    return sorted(set(event_types))


def _note(session: Session, caller: Caller, row: Webhook, action: str, **data: Any) -> None:
    audit.record(session, actor=caller.actor, action=action, project=row.project, target=row.id, data=data)
