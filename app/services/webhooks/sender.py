"""Delivers what waits for a webhook: takes its turn, posts what is due one by one, and writes down how it went."""

import logging
from collections.abc import Callable, Collection

from app.database.engine import Database
from app.domain.webhooks import signature
from app.services.webhooks.delivery_queue import Due, Parcel, Turns
from app.services.webhooks.http_post import Posted, PostRules, post
from config.settings import Settings

logger = logging.getLogger(__name__)


class WebhookSender:
    """Shared by the threads of a coordinator; nothing is held while a receiver is waited for."""

    def __init__(self, db: Database, settings: Settings) -> None:
        own = settings.webhook
        self._rules = PostRules(allow=own.allow, timeout_seconds=own.timeout_seconds)
        self._turns = Turns(db, secret_key=settings.security.secret_key, timeout_seconds=own.timeout_seconds)

    def due(self, *, besides: Collection[str], besides_projects: Collection[str], limit: int) -> list[Due]:
        """Webhooks to deliver to now, without those that the caller is at already."""
        return self._turns.due(besides=besides, besides_projects=besides_projects, limit=limit)

    def deliver(self, due: Due, *, go_on: Callable[[], bool]) -> None:
        """Send one after the other until one fails, nothing is left, or ``go_on`` says no."""
        parcel = self._turns.take(due)
        while parcel is not None:
            posted = self._try(parcel)
            parcel = self._turns.settle(parcel, posted, go_on=go_on())

    def _try(self, parcel: Parcel) -> Posted:
        if parcel.problem:
            return Posted(problem=parcel.problem)
        headers = {
            "X-Trainyard-Event": parcel.event_type,
            "X-Trainyard-Delivery": parcel.delivery_id,
            "X-Trainyard-Signature": signature(parcel.secret, int(parcel.at.timestamp()), parcel.body),
        }
        posted = post(parcel.url, parcel.body, headers, self._rules)
        if posted.problem:
            logger.info("webhook %s did not take %s: %s", parcel.webhook_id, parcel.delivery_id, posted.problem)
        return posted
