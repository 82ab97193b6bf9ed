"""What commands say about a service."""

import json
from typing import Any

from app.cli.output import age
from trainyard.records import Replica, Service

HEADS = (
    *("name", "model", "task", "status", "replicas", "in flight", "waiting"),
    *("tokens/s", "p95 first token", "adapters", "asked", "id"),
)


def row(service: Service) -> tuple[object, ...]:
    """Of the list of services, under ``HEADS``."""
    asked = f"{age(service['requested_at'])} ago" if service["requested_at"] else "never"
    numbers = (service["in_flight"], service["waiting"])
    names = (service["name"], model(service), service["task"], service["status"])
    speeds = (f"{service['tokens_per_second']:,.0f}", first_token(service), service["adapters_loaded"])
    return (*names, replicas(service), *numbers, *speeds, asked, service["service_id"])


def first_token(service: Service) -> str:
    """How long 95 % of the recent streams took to their first token, at most."""
    seconds = service["first_token_seconds"]
    if seconds is None:
        return "–"
    return f"{seconds * 1000:,.0f} ms" if seconds < 1 else f"{seconds:,.1f} s"


def replicas(service: Service) -> str:
    """``1 of 0–4``, with those that are starting."""
    least, most = service["replicas"]["min"], service["replicas"]["max"]
    asked = f"{least}–{most}" if least != most else f"{most}"
    starting = f", {service['starting']} starting" if service["starting"] else ""
    return f"{service['answering']} of {asked}{starting}"


def model(service: Service) -> str:
    named = service["model"]
    if named.get("job_id"):
        return f"{named['job_id']}@{named['checkpoint']}" if named.get("checkpoint") else str(named["job_id"])
    return str(named.get("model_uri", ""))


def fields(service: Service) -> dict[str, Any]:
    limits = {name: value for name, value in service["limits"].items() if value is not None}
    return {
        "id": service["service_id"],
        "name": service["name"],
        "project": service["project"],
        "model": model(service),
        "task": service["task"],
        "status": service["status"],
        "waits because": service["pending_reason"],
        "replicas": replicas(service),
        "in flight": service["in_flight"],
        "waiting": service["waiting"],
        "tokens per second": f"{service['tokens_per_second']:,.0f}",
        "p95 first token": first_token(service),
        "adapters loaded": service["adapters_loaded"],
        "target in flight": service["replicas"]["target_in_flight"],
        "idle seconds": service["replicas"]["idle_seconds"],
        "adapters": service["adapters"],
        "limits": limits,
        "defaults": service["defaults"],
        "resources": service["resource_config"],
        "revision": service["revision"],
        "made by": _maker(service),
        "created": service["created_at"],
        "last asked": service["requested_at"],
    }


def _maker(service: Service) -> str:
    if service["is_automatic"]:
        return "the first request for its model"
    return service["created_by_name"] or service["created_by"]


def replica_row(replica: Replica) -> tuple[object, ...]:
    """(number, job, revision, state, node, since when it answers, why not)."""
    state = "draining" if replica["is_draining"] and replica["status"] == "SERVING" else replica["status"]
    since = f"{age(replica['answers_since'])}" if replica["answers"] and replica["answers_since"] else ""
    why = replica["error_message"] or ("" if replica["answers"] else replica["pending_reason"])
    places = replica["node_names"]
    return replica["number"], replica["job_id"], replica["revision"], state, places, since, (why or "")[:200]


def waits_for(service: Service) -> str:
    """Why no replica answers, in one line."""
    if service["pending_reason"]:
        return service["pending_reason"]
    return "a replica is starting" if service["starting"] else "waits for the coordinator to start a replica"


def why_not(service: Service) -> str:
    """For the user of a service that does not answer."""
    if service["status"] != "ACTIVE":
        return f"{service['name']} is {service['status']}"
    return (
        f"{service['name']} does not answer after {service['failures']} failures: {waits_for(service)}\n"
        f"Its log: trainyard services logs {service['name']} · end it: trainyard services delete {service['name']}"
    )


def example(url: str, service: Service) -> str:
    """The address, and a request to try."""
    body: dict[str, Any] = {"model": service["name"]}
    if service["task"] == "embed":
        path, body["input"] = "embeddings", "Hello"
    elif service["task"] == "score":
        path, body["query"], body["documents"] = "rerank", "Hello", ["Good morning", "Good night"]
    else:
        path, body["messages"] = "chat/completions", [{"role": "user", "content": "Hello"}]
    lines = [
        f"{service['name']} answers at {url}/v1 as model {service['name']!r}",
        f"  curl {url}/v1/{path} -H 'Authorization: Bearer '$TRAINYARD_API_KEY \\",
        f"    -H 'Content-Type: application/json' -d '{json.dumps(body)}'",
    ]
    return "\n".join([*lines, f"  trainyard chat {service['name']}"] if service["task"] == "generate" else lines)
