"""Delivers the due events of a webhook: acquires its delivery lease, sends them one by one, and records the results."""

import logging
from collections.abc import Callable, Collection

from app.database.engine import Database
from app.domain.webhook_messages import email_of
from app.domain.webhooks import signature
from app.services.webhooks.delivery_queue import DeliveryAttempt, Due, Turns
from app.services.webhooks.http_post import Posted, PostRules, post
from app.services.webhooks.smtp_mail import Mail, send
from config.settings import Settings

logger = logging.getLogger(__name__)


class WebhookSender:
    """Thread-safe; holds no lock or transaction while it waits for a receiver."""

    def __init__(self, db: Database, settings: Settings) -> None:
        own = settings.webhook
        self._rules = PostRules(allow=own.allow, timeout_seconds=own.timeout_seconds)
        self._smtp, self._dashboard = settings.smtp, settings.web.url
        self._turns = Turns(
            db,
            secret_key=settings.security.secret_key,
            timeout_seconds=max(own.timeout_seconds, 2 * settings.smtp.timeout_seconds),
            emails_per_hour=settings.smtp.per_hour,
        )

    def due(self, *, besides: Collection[str], besides_projects: Collection[str], limit: int) -> list[Due]:
        """Webhooks with due deliveries, excluding those that the caller is already delivering to."""
        return self._turns.due(besides=besides, besides_projects=besides_projects, limit=limit)

    def any_waiting(self) -> bool:
        """Whether any delivery is due now or later."""
        return self._turns.any_waiting()

    def deliver(self, due: Due, *, go_on: Callable[[], bool]) -> None:
        """Send due deliveries until one fails, none is left, or ``go_on`` returns False."""
        attempt = self._turns.take(due)
        while attempt is not None:
            posted = self._try(attempt)
            attempt = self._turns.settle(attempt, posted, go_on=go_on())

    def _try(self, attempt: DeliveryAttempt) -> Posted:
        if attempt.problem:
            return Posted(problem=attempt.problem)
        posted = self._mail(attempt) if attempt.recipients else self._post(attempt)
        if posted.problem:
            logger.info("webhook %s did not accept %s: %s", attempt.webhook_id, attempt.delivery_id, posted.problem)
        return posted

    def _post(self, attempt: DeliveryAttempt) -> Posted:
        headers = {
            "X-Trainyard-Event": attempt.event_type,
            "X-Trainyard-Delivery": attempt.delivery_id,
            "X-Trainyard-Signature": signature(attempt.secret, int(attempt.at.timestamp()), attempt.body),
        }
        return post(attempt.url, attempt.body, headers, self._rules)

    def _mail(self, attempt: DeliveryAttempt) -> Posted:
        subject, text = email_of(attempt.payload, webhook_id=attempt.webhook_id, dashboard=self._dashboard)
        mail = Mail(
            delivery_id=attempt.delivery_id,
            event_type=attempt.event_type,
            recipients=attempt.recipients,
            reached=attempt.reached,
            refused=attempt.refused,
            subject=subject,
            text=text,
            at=attempt.at,
        )
        return send(mail, self._smtp)
