"""Every GET that the API description knows, asked about what is there."""

import re
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator

from tests.systems.system import System

STREAM = "text/event-stream"


def get_everything(system: System, job_ids: Iterable[str]) -> dict[str, bytes]:
    """Answer by request, as an administrator gets it; of what streams the stream, too."""
    described = system.call("GET", "/v1/openapi.json")[1]["paths"]
    paths = [path for path, methods in described.items() if "get" in methods]
    answers: dict[str, bytes] = {}
    for path in paths:
        for asked in _filled(system, path, list(job_ids)):
            answers[f"GET {asked}"] = ask(system, asked, "application/json")
            if asked.endswith(("/events", "/logs", "/metrics/stream")):
                answers[f"GET {asked} as a stream"] = ask(system, asked, STREAM)
    return answers


def _filled(system: System, path: str, job_ids: list[str]) -> Iterator[str]:
    """The path with what its parameters may stand for."""
    if "/jobs/{" in path:
        for job_id in job_ids:
            for artifact in _artifacts(system, job_id) if "artifacts/{" in path else [""]:
                yield re.sub(r"\{[^}]*path[^}]*\}", artifact, re.sub(r"\{job[^}]*\}", job_id, path))
        return
    hooks = [each["webhook_id"] for each in system.get("/v1/webhooks")["webhooks"]]
    if path.endswith("/deliveries/{delivery_id}"):
        for hook in hooks:
            of_hook = f"/v1/webhooks/{hook}/deliveries"
            yield from (f"{of_hook}/{each['delivery_id']}" for each in system.get(of_hook)["deliveries"][:5])
        return
    known = {
        "audit": [each["id"] for each in system.get("/v1/audit?page_size=5")["entries"]],
        "keys": [each["key_id"] for each in system.get("/v1/keys")["keys"]],
        "webhooks": hooks,
        "queues": ["default"],
        "nodes": ["n1"],
        "projects": ["default"],
    }
    noun = path.split("/")[2] if path.count("/") > 1 else ""
    for name in known.get(noun, [""]) if "{" in path else [""]:
        yield re.sub(r"\{[^}]*\}", name, path, count=1)


def _artifacts(system: System, job_id: str) -> list[str]:
    return [each["path"] for each in system.get(f"/v1/jobs/{job_id}/artifacts")["artifacts"]]


def ask(system: System, path: str, accept: str = "*/*", *, key: str = "", body: bytes | None = None) -> bytes:
    """Whatever the status: an error must tell no more. A POST when there is a body."""
    headers = {"Authorization": f"Bearer {key or system.key}", "Accept": accept, "Content-Type": "application/json"}
    request = urllib.request.Request(f"http://127.0.0.1:{system.port}{path}", headers=headers, data=body)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return bytes(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return bytes(error.read())
