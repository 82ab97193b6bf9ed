"""Messages as Celery's clients write them, whole and with parts replaced."""

import base64
import json
import secrets
from typing import Any

from app.services.requests.wakeups import ADMIT


def task_message(
    *arguments: object, task: str = ADMIT, queue: str = "jobs.default", body: object = None, **parts: Any
) -> dict[str, Any]:
    """A request for the task; ``body`` replaces its arguments, ``parts`` its headers and properties."""
    content = [arguments, {}, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}]
    headers = {"task": task, "id": secrets.token_hex(8), "expires": None, "retries": 0, "timelimit": [None, None]}
    return _message(content if body is None else body, headers | parts.pop("headers", {}), routing_key=queue, **parts)


def command_message(method: str, arguments: object = None, **fields: object) -> dict[str, Any]:
    """A request for a command of Celery's remote control; ``fields`` replace what its body says."""
    return _message({"method": method, "arguments": arguments, "destination": None, **fields}, {"clock": 1})


def _message(
    body: object, headers: dict[str, Any], *, routing_key: str = "", properties: dict[str, Any] | None = None
) -> dict[str, Any]:
    return {
        "body": base64.b64encode(json.dumps(body).encode()).decode(),
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": headers,
        "properties": {
            "delivery_tag": secrets.token_hex(8),
            "delivery_info": {"exchange": "", "routing_key": routing_key},
            "body_encoding": "base64",
            "priority": 5,
            **(properties or {}),
        },
    }
