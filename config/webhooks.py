"""Webhook delivery settings."""

from dataclasses import dataclass

from config.values import rules
from config.values.fields import setting


@dataclass(frozen=True, kw_only=True)
class WebhookSettings:
    allow: tuple[str, ...] = setting((), "comma-separated private hosts or networks that webhooks may name")
    timeout_seconds: float = setting(10.0, "timeout of a delivery")
    threads: int = setting(16, "receivers that one coordinator serves concurrently", rules.at_least_one)
    max_per_project: int = setting(20, "maximum number of webhooks per project", rules.at_least_one)
    kept_days: int = setting(30, "how long finished deliveries are retained", rules.at_least_one)
