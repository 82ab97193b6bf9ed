"""Settings of how projects' receivers are told of events."""

from dataclasses import dataclass

from config import value_rules as rules
from config.fields import setting


@dataclass(frozen=True, kw_only=True)
class WebhookSettings:
    allow: tuple[str, ...] = setting((), "comma-separated hosts or networks that webhooks may name although private")
    timeout_seconds: float = setting(10.0, "a receiver that has not answered after this long has failed")
    threads: int = setting(16, "receivers that one coordinator tells at the same time", rules.at_least_one)
    max_per_project: int = setting(20, "webhooks that one project may have", rules.at_least_one)
    kept_days: int = setting(30, "how long finished deliveries are kept", rules.at_least_one)
