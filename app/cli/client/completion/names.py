"""Names and ids that the server has, for completion: asked for at most a second, and kept for ten.

A shell waits for the answer, so a server that is away, slow or refuses leaves nothing to complete and no message.
"""

import hashlib
import json
import re
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import islice
from pathlib import Path

import click

from config.environment import user_cache_directory
from trainyard.client import Client, ClientError, RetryPolicy

SECONDS = 0.9  # of waiting, so that with the program's own start the shell waits about a second
KEPT_SECONDS = 10.0
MOST = 200
THREAD = "completion"
# A name with other characters would have to be quoted, in each shell in another way.
_PLAIN = re.compile(r"[\w.@-]+", re.ASCII)

Names = list[tuple[str, str]]  # each with a few words for shells that show them


def _jobs(client: Client) -> Names:
    jobs = list(islice(client.list(), MOST))
    names = [job.name for job in jobs]
    ids = [(job.job_id, f"{job.name} {job.status}") for job in jobs]
    # A name that several jobs have stands for none of them.
    return [*ids, *((job.name, job.status) for job in jobs if names.count(job.name) == 1), ("@last", "your newest")]


def _column(rows: Iterable[object], column: str, *more: str) -> Names:
    """A column of the first rows, with others as their words."""
    found = [row for row in islice(rows, MOST) if isinstance(row, dict)]
    return [(str(row[column]), " ".join(str(row.get(name) or "") for name in more).strip()) for row in found]


def _roles(client: Client, handle: str) -> Names:
    """Of one job."""
    tasks = client.find(handle).data.get("tasks") or []
    return [(str(task["role"]), f"{task.get('count', 1)} of it") for task in tasks]


KINDS: dict[str, Callable[[Client], Names]] = {
    "jobs": _jobs,
    "queues": lambda client: _column(client.queues.list(), "name"),
    "nodes": lambda client: _column(client.nodes.list(), "name", "status"),
    "projects": lambda client: _column(client.projects.list(), "name"),
    "services": lambda client: _column(client.services.list(), "name", "status"),
    "sweeps": lambda client: _column(client.sweeps.list(), "sweep_id", "name", "status"),
    "batches": lambda client: _column(client.batches.list(), "id", "status"),
    "evaluations": lambda client: _column(client.evaluations.list(), "evaluation_id", "name", "status"),
    "files": lambda client: _column(client.files.list(), "id", "filename"),
    "webhooks": lambda client: _column(client.webhooks.list(), "webhook_id", "url"),
    "keys": lambda client: _column(client.keys.list(), "key_id", "name"),
}


def names_of(kind: str) -> Names:
    """What the server has of this kind."""
    return _names(kind, KINDS[kind]) if kind in KINDS else []


def roles_of(handle: str) -> Names:
    """The roles of the job that this id or name stands for."""
    return _names(f"roles\n{handle}", lambda client: _roles(client, handle)) if handle else []


def _names(kind: str, lists: Callable[[Client], Names]) -> Names:
    url, key = _address()
    kept = _kept_at(url, key, kind)
    found = _read(kept)
    if found is None:
        found = [(name, text) for name, text in _asked(url, key, lists) if _PLAIN.fullmatch(name)]
        _keep(kept, found)
    return found


def _address() -> tuple[str, str]:
    from app.cli.connection import address  # noqa: PLC0415 – only what has to be asked for waits for it

    try:
        return address()
    except click.ClickException:
        return "", ""


def _asked(url: str, key: str, lists: Callable[[Client], Names]) -> Names:
    """The answer, if it comes in time."""
    answers: list[Names] = []

    def ask() -> None:
        with suppress(ClientError, ValueError, KeyError, TypeError):
            answers.append(lists(Client(url, key, timeout_seconds=SECONDS, patience=RetryPolicy(tries=1, seconds=0))))

    # A thread, because the time limit of a connection begins anew with each part of an answer.
    asking = threading.Thread(target=ask, name=THREAD, daemon=True)
    asking.start()
    asking.join(SECONDS)
    return answers[0] if answers else []


def _kept_at(url: str, key: str, kind: str) -> Path:
    """Of this server and this key: another key sees other jobs."""
    whose = hashlib.sha256(f"{url}\n{key}\n{kind}".encode()).hexdigest()[:24]
    return user_cache_directory() / "completion" / f"{whose}.json"


def _read(path: Path) -> Names | None:
    try:
        if not 0 <= time.time() - path.stat().st_mtime <= KEPT_SECONDS:
            return None
        return [(str(name), str(text)) for name, text in json.loads(path.read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError):
        return None


def _keep(path: Path, names: Names) -> None:
    """What can't be kept is asked for again."""
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = path.with_suffix(f".{threading.get_ident()}")
        new.touch(mode=0o600)
        new.write_text(json.dumps(names), encoding="utf-8")
        new.replace(path)
