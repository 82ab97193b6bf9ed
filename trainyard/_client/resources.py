"""The client's API besides jobs: one small class per resource."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, cast

from trainyard import records
from trainyard._client.calls import Calls, forwarded, query_of, without_unset
from trainyard._client.http import quote

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
        weight: float | None = UNCHANGED,
    ) -> records.Queue:
        """Pause the queue, or set limits or the weight; None removes one."""
        limits = {"max_running_jobs": max_running_jobs, "max_waiting_jobs": max_waiting_jobs, "weight": weight}
        body = without_unset(paused=paused) | {key: value for key, value in limits.items() if value is not UNCHANGED}
        return cast("records.Queue", self._calls.record("PATCH", f"/v1/queues/{quote(name)}", body=body))

    def line(self, *, queue: str = "", order_by: str = "") -> Iterator[records.QueueEntry]:
        """The waiting jobs, in the order of service unless ``order_by`` says otherwise."""
        query = query_of(queue=queue, order_by=order_by)
        return cast("Iterator[records.QueueEntry]", self._calls.pages("/v1/queue", "entries", query))

    def first_in_line(self, most: int, *, queue: str = "") -> tuple[records.QueueEntries, int]:
        """The waiting jobs that are served first, and the number of all of them."""
        found = self._calls.first("/v1/queue", "entries", query_of(queue=queue), most=most)
        return cast("tuple[records.QueueEntries, int]", found)

    def shares(self) -> records.Shares:
        """Shares of the projects that the key sees, of each kind of device the next to be served first."""
        return cast("records.Shares", self._calls.record("GET", "/v1/shares")["shares"])

    def gpu_hours(
        self, *, by: Sequence[str] = ("project", "month"), project: str = "", since: str = "", until: str = ""
    ) -> records.GpuHoursList:
        """GPU-hours of the projects that the key sees; ``since`` and ``until`` are months such as 2026-05."""
        query = query_of(by=",".join(by), project=project, since=since, until=until)
        return cast("records.GpuHoursList", self._calls.record("GET", "/v1/usage/devices", query=query)["usage"])


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

    def change_labels(self, name: str, *, add: Sequence[str] = (), remove: Sequence[str] = ()) -> records.Node:
        """Add and remove labels; the others are unchanged."""
        body = {"add": [*add], "remove": [*remove]}
        return cast("records.Node", self._calls.record("POST", f"/v1/nodes/{quote(name)}/labels", body=body))

    def usage(self, name: str, *, minutes: int = 60) -> Sequence[records.NodeSample]:
        """What the node and its devices did in the last minutes, at most a day: a sample each, the oldest first."""
        answer = self._calls.record("GET", f"/v1/nodes/{quote(name)}/usage", query=query_of(minutes=minutes))
        return cast("Sequence[records.NodeSample]", answer["samples"])

    def why(self, name: str, job_id: str) -> records.NodeFit:
        """Whether the job can start there: the result of every filter, and the node's scores."""
        return cast("records.NodeFit", self._calls.record("GET", f"/v1/nodes/{quote(name)}/why/{quote(job_id)}"))

    def explain(self, job_id: str) -> records.Placement:
        """Why the job waits, and every node's filters and scores, the best first."""
        return cast("records.Placement", self._calls.record("GET", f"/v1/jobs/{quote(job_id)}/placement"))

    def drain(self, name: str, *, requeue: bool = False) -> records.DrainedNode:
        """Stop new jobs from starting there; with ``requeue``, running jobs save and return to the queue."""
        body = {"requeue": requeue}
        return cast("records.DrainedNode", self._calls.record("POST", f"/v1/nodes/{quote(name)}/drain", body=body))

    def enable(self, name: str) -> records.Node:
        return cast("records.Node", self._calls.record("POST", f"/v1/nodes/{quote(name)}/enable", body={}))

    def put_back(self, name: str) -> records.PutBack:
        """Return devices to service after the unkillable process that held them is gone."""
        return cast("records.PutBack", self._calls.record("POST", f"/v1/nodes/{quote(name)}/put-back", body={}))

    def remove(self, name: str) -> None:
        """Remove a lost node; it registers again if its worker returns."""
        self._calls.send("DELETE", f"/v1/nodes/{quote(name)}")


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

    def change(  # noqa: PLR0913  a project has this many fields
        self,
        name: str,
        *,
        description: str | None = None,
        quota: Mapping[str, Any] | None = None,
        sessions: str | None = None,
        claims: str | None = None,
        auto_services: str | None = None,
        image_sources: Sequence[str] | None = None,
        image_digests: str | None = None,
        required_capabilities: Sequence[str] | None = None,
    ) -> records.Project:
        """Omitted fields and limits are unchanged; a limit of None is removed.

        ``sessions``: whether people may reach its running jobs; allowed, recorded or off. ``claims``: whether its jobs
        may make volume claims; create or use. ``auto_services``: whether the first request for a model without a
        service makes one; on, off, or default for what the gateways' settings say. ``image_sources``: registries and
        parts of them whose images its jobs may use; an empty list limits nothing. ``image_digests``: whether jobs name
        images with their digest; optional or required. ``required_capabilities``: what
        nodes of its jobs must have, such as ``sandbox:full``; an empty list demands nothing.
        """
        body = without_unset(
            description=description,
            quota=quota,
            sessions=sessions,
            claims=claims,
            auto_services=auto_services,
            image_sources=image_sources,
            image_digests=image_digests,
            required_capabilities=required_capabilities,
        )
        return cast("records.Project", self._calls.record("PATCH", f"/v1/projects/{quote(name)}", body=body))

    def change_egress(self, name: str, *, add: Sequence[str] = (), remove: Sequence[str] = ()) -> records.Project:
        """Add and remove services that jobs with the network ``gate`` may connect to; the others are unchanged."""
        body = {"add": [*add], "remove": [*remove]}
        return cast("records.Project", self._calls.record("POST", f"/v1/projects/{quote(name)}/egress", body=body))

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
        self,
        *,
        role: str = "user",
        project: str | None = None,
        name: str = "",
        expires_days: int | None = None,
        requests_per_minute: int | None = None,
        tokens_per_minute: int | None = None,
    ) -> records.NewKey:
        """The limits are of requests to models; without them those of the gateways' settings hold."""
        body = without_unset(
            role=role,
            project=project,
            name=name,
            expires_days=expires_days,
            requests_per_minute=requests_per_minute,
            tokens_per_minute=tokens_per_minute,
        )
        return cast("records.NewKey", self._calls.record("POST", "/v1/keys", body=body))

    def change(self, key_id: str, **limits: int | None) -> records.Key:
        """``requests_per_minute`` and ``tokens_per_minute`` of requests to models; None: as the gateways' settings."""
        return cast("records.Key", self._calls.record("PATCH", f"/v1/keys/{quote(key_id)}", body=limits))

    def rotate(self, key_id: str, *, grace_seconds: int | None = None) -> records.NewKey:
        """Replace a key; the old one stays valid for ``grace_seconds``."""
        body = without_unset(grace_seconds=grace_seconds)
        return cast("records.NewKey", self._calls.record("POST", f"/v1/keys/{quote(key_id)}/rotate", body=body))

    def revoke(self, key_id: str) -> None:
        self._calls.send("DELETE", f"/v1/keys/{quote(key_id)}")


class Users:
    """People who sign in at the dashboard by an identity provider."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def list(self, *, order_by: str = "") -> Iterator[records.User]:
        return cast("Iterator[records.User]", self._calls.pages("/v1/users", "users", query_of(order_by=order_by)))


class Audit:
    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def list(self, *, after: Time = "", before: Time = "", **filters: str) -> Iterator[records.AuditEntry]:
        """Newest first; ``filters``: ``actor``, ``action``, ``target``, ``outcome``, ``project``, ``order_by``."""
        query = query_of(after=after, before=before, **filters)
        return cast("Iterator[records.AuditEntry]", self._calls.pages("/v1/audit", "entries", query))

    def newest(
        self, most: int, *, after: Time = "", before: Time = "", **filters: str
    ) -> tuple[records.AuditEntries, int]:
        """The newest entries with these filters, and the number of all of them."""
        query = query_of(after=after, before=before, **filters)
        found = self._calls.first("/v1/audit", "entries", query, most=most)
        return cast("tuple[records.AuditEntries, int]", found)

    def get(self, entry_id: str) -> records.AuditEntry:
        return cast("records.AuditEntry", self._calls.record("GET", f"/v1/audit/{quote(entry_id)}"))


class Models:
    """Names of base models, which requests take in place of a location, and fine-tuned models."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def list(self) -> records.RegisteredModels:
        return cast("records.RegisteredModels", self._calls.record("GET", "/v1/registered-models")["models"])

    def add(self, name: str, location: str, *, project: str | None = None) -> records.RegisteredModel:
        """Name the model at a location, for one project or for all."""
        body = {"name": name, "location": location, **without_unset(project=project)}
        return cast("records.RegisteredModel", self._calls.record("POST", "/v1/registered-models", body=body))

    def remove(self, name: str) -> None:
        """Remove the name of a base model; its files are left alone."""
        self._calls.send("DELETE", f"/v1/registered-models/{quote(name)}")


class Webhooks:
    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def list(self, *, project: str = "") -> Iterator[records.Webhook]:
        query = query_of(project=project)
        return cast("Iterator[records.Webhook]", self._calls.pages("/v1/webhooks", "webhooks", query))

    def get(self, webhook_id: str) -> records.Webhook:
        return cast("records.Webhook", self._calls.record("GET", _hook(webhook_id)))

    def create(
        self, url: str | None = None, *, event_types: Sequence[str] = (), secret: str | None = None, **more: Any
    ) -> records.NewWebhook:
        """``more``: ``description``, ``format``, ``is_active``, ``project``. Without ``secret`` one is made.

        With the format ``email``, ``recipients`` take the place of ``url`` and ``secret``.
        """
        body = {"event_types": list(event_types), **without_unset(url=url, secret=secret, **more)}
        return cast("records.NewWebhook", self._calls.record("POST", "/v1/webhooks", body=body))

    def change(self, webhook_id: str, **changes: Any) -> records.Webhook:
        """``url`` or ``recipients``, ``description``, ``event_types``, ``format``, ``secret``,
        ``is_active``; others stay.
        """
        return cast("records.Webhook", self._calls.record("PATCH", _hook(webhook_id), body=changes))

    def delete(self, webhook_id: str) -> None:
        self._calls.send("DELETE", _hook(webhook_id))

    def test(self, webhook_id: str) -> records.Delivery:
        """Send it a test event."""
        return cast("records.Delivery", self._calls.record("POST", f"{_hook(webhook_id)}/test", body={}))

    def deliveries(self, webhook_id: str, *, state: str = "") -> Iterator[records.Delivery]:
        path, query = f"{_hook(webhook_id)}/deliveries", query_of(state=state)
        return cast("Iterator[records.Delivery]", self._calls.pages(path, "deliveries", query))

    def newest_deliveries(self, webhook_id: str, most: int, *, state: str = "") -> tuple[records.Deliveries, int]:
        """The newest deliveries, and the number of all of them."""
        found = self._calls.first(f"{_hook(webhook_id)}/deliveries", "deliveries", query_of(state=state), most=most)
        return cast("tuple[records.Deliveries, int]", found)

    def delivery(self, webhook_id: str, delivery_id: str) -> records.DeliveryWithPayload:
        path = f"{_hook(webhook_id)}/deliveries/{quote(delivery_id)}"
        return cast("records.DeliveryWithPayload", self._calls.record("GET", path))

    def redeliver(self, webhook_id: str, delivery_id: str) -> records.Delivery:
        path = f"{_hook(webhook_id)}/deliveries/{quote(delivery_id)}/redeliver"
        return cast("records.Delivery", self._calls.record("POST", path, body={}))


class Data:
    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def validate(
        self,
        data_config: Mapping[str, Any],
        training_config: Mapping[str, Any] | None = None,
        *,
        tokens: Mapping[str, str] | None = None,
    ) -> records.DataReport:
        """Validate data before submitting, and with ``training_config`` the model to train on it.

        ``tokens`` open the user's own storage, as for ``Client.submit``.
        """
        body = {"data_config": data_config, **without_unset(training_config=training_config)}
        found = self._calls.record("POST", "/v1/data/validate", body=body, headers=forwarded(tokens))
        return cast("records.DataReport", found)


def _hook(webhook_id: str) -> str:
    return f"/v1/webhooks/{quote(webhook_id)}"
