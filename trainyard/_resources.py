"""The client's API besides jobs: one small class per resource."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, cast

from trainyard import records
from trainyard._calls import Calls, query_of, without_unset
from trainyard._http import quote

Time = datetime | str
UNCHANGED: Any = object()  # where None has a meaning of its own: no limit


class Queues:
    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def list(self) -> records.Queues:
        return cast("records.Queues", self._calls.record("GET", "/v1/queues")["queues"])

    def get(self, name: str) -> records.Queue:
        return cast("records.Queue", self._calls.record("GET", f"/v1/queues/{quote(name)}"))

    def create(self, name: str, **limits: Any) -> records.Queue:
        """``limits`` as in ``change``."""
        return cast("records.Queue", self._calls.record("POST", "/v1/queues", body={"name": name, **limits}))

    def change(
        self,
        name: str,
        *,
        paused: bool | None = None,
        max_running_jobs: int | None = UNCHANGED,
        max_waiting_jobs: int | None = UNCHANGED,
    ) -> records.Queue:
        """Pause the queue or set limits; None removes a limit."""
        limits = {"max_running_jobs": max_running_jobs, "max_waiting_jobs": max_waiting_jobs}
        body = without_unset(paused=paused) | {key: value for key, value in limits.items() if value is not UNCHANGED}
        return cast("records.Queue", self._calls.record("PATCH", f"/v1/queues/{quote(name)}", body=body))

    def line(self, *, queue: str = "", order_by: str = "") -> Iterator[records.QueueEntry]:
        """The waiting jobs, in the order of service unless ``order_by`` says otherwise."""
        query = query_of(queue=queue, order_by=order_by)
        return cast("Iterator[records.QueueEntry]", self._calls.pages("/v1/queue", "entries", query))


class Nodes:
    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def list(self, *, order_by: str = "") -> Iterator[records.Node]:
        return cast("Iterator[records.Node]", self._calls.pages("/v1/nodes", "nodes", query_of(order_by=order_by)))

    def get(self, name: str) -> records.Node:
        return cast("records.Node", self._calls.record("GET", f"/v1/nodes/{quote(name)}"))

    def label(self, name: str, labels: Sequence[str]) -> records.Node:
        """Replace all labels; those of its node.toml must be included."""
        body = {"labels": [*labels]}
        return cast("records.Node", self._calls.record("PATCH", f"/v1/nodes/{quote(name)}", body=body))

    def drain(self, name: str, *, requeue: bool = False) -> records.Node:
        """Stop new jobs from starting there; with ``requeue``, running jobs save and return to the queue."""
        body = {"requeue": requeue}
        return cast("records.Node", self._calls.record("POST", f"/v1/nodes/{quote(name)}/drain", body=body))

    def enable(self, name: str) -> records.Node:
        return cast("records.Node", self._calls.record("POST", f"/v1/nodes/{quote(name)}/enable", body={}))


class Projects:
    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def list(self, *, order_by: str = "") -> Iterator[records.Project]:
        query = query_of(order_by=order_by)
        return cast("Iterator[records.Project]", self._calls.pages("/v1/projects", "projects", query))

    def get(self, name: str) -> records.Project:
        return cast("records.Project", self._calls.record("GET", f"/v1/projects/{quote(name)}"))

    def create(self, name: str, *, description: str = "") -> records.Project:
        body = {"name": name, "description": description}
        return cast("records.Project", self._calls.record("POST", "/v1/projects", body=body))

    def change(self, name: str, *, description: str) -> records.Project:
        body = {"description": description}
        return cast("records.Project", self._calls.record("PATCH", f"/v1/projects/{quote(name)}", body=body))

    def delete(self, name: str) -> None:
        """Delete a project without jobs; its keys are revoked."""
        self._calls.send("DELETE", f"/v1/projects/{quote(name)}")


class Keys:
    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def list(self, *, order_by: str = "") -> Iterator[records.Key]:
        return cast("Iterator[records.Key]", self._calls.pages("/v1/keys", "keys", query_of(order_by=order_by)))

    def get(self, key_id: str) -> records.Key:
        return cast("records.Key", self._calls.record("GET", f"/v1/keys/{quote(key_id)}"))

    def create(
        self, *, role: str = "user", project: str | None = None, name: str = "", expires_days: int | None = None
    ) -> records.NewKey:
        body = without_unset(role=role, project=project, name=name, expires_days=expires_days)
        return cast("records.NewKey", self._calls.record("POST", "/v1/keys", body=body))

    def rotate(self, key_id: str, *, grace_seconds: int | None = None) -> records.NewKey:
        """Replace a key; the old one stays valid for ``grace_seconds``."""
        body = without_unset(grace_seconds=grace_seconds)
        return cast("records.NewKey", self._calls.record("POST", f"/v1/keys/{quote(key_id)}/rotate", body=body))

    def revoke(self, key_id: str) -> None:
        self._calls.send("DELETE", f"/v1/keys/{quote(key_id)}")


class Audit:
    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def list(self, *, after: Time = "", before: Time = "", **filters: str) -> Iterator[records.AuditEntry]:
        """Newest first; ``filters``: ``actor``, ``action``, ``target``, ``outcome``, ``project``, ``order_by``."""
        query = query_of(after=after, before=before, **filters)
        return cast("Iterator[records.AuditEntry]", self._calls.pages("/v1/audit", "entries", query))


class Webhooks:
    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def list(self) -> Iterator[records.Webhook]:
        return cast("Iterator[records.Webhook]", self._calls.pages("/v1/webhooks", "webhooks"))

    def get(self, webhook_id: str) -> records.Webhook:
        return cast("records.Webhook", self._calls.record("GET", _hook(webhook_id)))

    def create(
        self, url: str, *, event_types: Sequence[str] = (), secret: str | None = None, **more: Any
    ) -> records.NewWebhook:
        """``more``: ``description``, ``is_active``, ``project``. Without ``secret`` one is made."""
        body = {"url": url, "event_types": list(event_types), **without_unset(secret=secret, **more)}
        return cast("records.NewWebhook", self._calls.record("POST", "/v1/webhooks", body=body))

    def change(self, webhook_id: str, **changes: Any) -> records.Webhook:
        """``url``, ``description``, ``event_types``, ``secret``, ``is_active``; omitted fields stay unchanged."""
        return cast("records.Webhook", self._calls.record("PATCH", _hook(webhook_id), body=changes))

    def delete(self, webhook_id: str) -> None:
        self._calls.send("DELETE", _hook(webhook_id))

    def test(self, webhook_id: str) -> records.Delivery:
        """Send it a test event."""
        return cast("records.Delivery", self._calls.record("POST", f"{_hook(webhook_id)}/test", body={}))

    def deliveries(self, webhook_id: str, *, state: str = "") -> Iterator[records.Delivery]:
        path, query = f"{_hook(webhook_id)}/deliveries", query_of(state=state)
        return cast("Iterator[records.Delivery]", self._calls.pages(path, "deliveries", query))

    def redeliver(self, webhook_id: str, delivery_id: str) -> records.Delivery:
        path = f"{_hook(webhook_id)}/deliveries/{quote(delivery_id)}/redeliver"
        return cast("records.Delivery", self._calls.record("POST", path, body={}))


class Data:
    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def validate(
        self, data_config: Mapping[str, Any], training_config: Mapping[str, Any] | None = None
    ) -> records.DataReport:
        """Validate data before submitting, and with ``training_config`` the model to train on it."""
        body = {"data_config": data_config, **without_unset(training_config=training_config)}
        return cast("records.DataReport", self._calls.record("POST", "/v1/data/validate", body=body))


def _hook(webhook_id: str) -> str:
    return f"/v1/webhooks/{quote(webhook_id)}"
