"""A project's webhook subscription, and its deliveries."""

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Index, String, Text, literal_column, text
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import ID, Base, utc_now


class Webhook(Base):
    __tablename__ = "webhook"

    id: Mapped[str] = mapped_column(ID, primary_key=True)
    project: Mapped[str] = mapped_column(ForeignKey("project.name", ondelete="CASCADE"), index=True)
    url: Mapped[str] = mapped_column(Text)  # empty: it sends emails
    recipients: Mapped[list[str]] = mapped_column(default=list, server_default=text("'[]'"))  # of emails
    description: Mapped[str] = mapped_column(String(255), default="")
    event_types: Mapped[list[str]]  # empty: all
    format: Mapped[str] = mapped_column(String(16), default="json", server_default="json")
    sealed_secret: Mapped[str] = mapped_column(Text)  # encrypted, not hashed: signing needs it; empty: emails
    is_active: Mapped[bool] = mapped_column(default=True)
    created_by: Mapped[str] = mapped_column(String(96), default="")
    created_at: Mapped[datetime] = mapped_column(default=utc_now)

    # The delivery lease: one coordinator delivers at a time, until it releases the lease or the lease expires.
    turn: Mapped[str] = mapped_column(ID, default="")
    turn_until: Mapped[datetime | None]
    failures: Mapped[int] = mapped_column(default=0)  # consecutive failed attempts
    rests_until: Mapped[datetime | None]


class WebhookDelivery(Base):
    """Written in the transaction of its event, so that neither exists without the other."""

    __tablename__ = "webhook_delivery"
    __table_args__ = (
        CheckConstraint("state IN ('waiting', 'delivered', 'given_up')", name="known_state"),
        Index("ix_webhook_delivery_webhook_id", "webhook_id", "id"),
        # Finds the oldest waiting delivery.
        Index(
            "ix_webhook_delivery_waiting",
            "webhook_id",
            "id",
            postgresql_where=text("state = 'waiting'"),
            sqlite_where=text("state = 'waiting'"),
        ),
        Index("ix_webhook_delivery_finished_at", "finished_at"),
    )

    id: Mapped[str] = mapped_column(ID, primary_key=True)
    webhook_id: Mapped[str] = mapped_column(ForeignKey("webhook.id", ondelete="CASCADE"))
    event_id: Mapped[str] = mapped_column(ID)
    event_type: Mapped[str] = mapped_column(String(48))
    payload: Mapped[dict[str, Any]]
    state: Mapped[str] = mapped_column(String(9), default="waiting")
    tries: Mapped[int] = mapped_column(default=0)
    next_try_at: Mapped[datetime | None]  # NULL: at once, independent of the writer's clock
    # Recipients whom an email has reached while others have to be tried again.
    reached: Mapped[list[str]] = mapped_column(default=list, server_default=text("'[]'"))
    # Recipients whom the mail server will never take, with its answer: they are not asked for again.
    refused: Mapped[dict[str, str]] = mapped_column(default=dict, server_default=text("'{}'"))
    status_code: Mapped[int | None]
    problem: Mapped[str] = mapped_column(Text, default="")
    created_at: Mapped[datetime] = mapped_column(default=utc_now)
    finished_at: Mapped[datetime | None]


# Literal SQL: with a bound parameter neither database would use the partial index.
IS_WAITING = WebhookDelivery.state == literal_column("'waiting'")
