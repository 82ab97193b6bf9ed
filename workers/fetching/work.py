"""Work of the fetching child: fetches each item with the fetcher of its scheme, within its limits."""

import errno
import traceback
from collections.abc import Callable
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from config.redaction import Redaction
from workers.fetching.cache import Cache
from workers.fetching.child.server import ProgressReporter, secrets_in
from workers.fetching.context import Context
from workers.fetching.failures import FetchFailed, NoRoom, Trouble
from workers.fetching.items import FetchedFile, Item, settings_from_json
from workers.fetching.uris import scheme_of

Fetcher = Callable[[Context, Item], list[FetchedFile]]

# Imported by name: each needs a large library of its own.
WEB, OBJECTS, HUB = "workers.fetching.web_files", "workers.fetching.objects", "workers.fetching.hub"
GIT = "workers.fetching.code.git"
FETCHERS = {
    "http": WEB,
    "https": WEB,
    "ipfs": WEB,
    "scaidrive": WEB,
    "scaiatlas": WEB,
    "s3": OBJECTS,
    "oci": OBJECTS,
    "obs": OBJECTS,
    "hf": HUB,
    "git+https": GIT,
}
NOT_THERE = {"data": "DATA_NOT_FOUND", "model": "MODEL_NOT_FOUND", "code": "INVALID_CONFIG"}


def work(request: dict[str, Any], heart: ProgressReporter) -> list[dict[str, Any]]:
    """The files of each item, or why there are none; stops after the first failure."""
    settings = settings_from_json(request["fetch"])
    context = Context(
        settings=settings,
        cache=Cache(Path(request["root"]), request["cache_bytes"], on_bytes=heart.arrived),
        heart=heart,
        secrets=request["secrets"],
    )
    hidden = Redaction(secrets_in(request))  # servers may send back what they were sent
    answers: list[dict[str, Any]] = []
    for document in request["items"]:
        item = Item(**document)
        late = f"it was not complete after {settings.max_seconds:g} s (TRAINYARD_FETCH_MAX_SECONDS)"
        heart.limit(settings.max_seconds, [*answers, {"failure": {"error_type": "STORAGE_ERROR", "message": late}}])
        try:
            files = _fetcher(item)(context, item)
        except FetchFailed as error:
            return [*answers, {"failure": _failure(item, error, hidden)}]
        except OSError as error:
            traceback.print_exc()  # redacted
            kind = NoRoom if error.errno in (errno.ENOSPC, errno.EDQUOT) else Trouble
            failed = kind(f"the disk of the node's cache failed: {error.strerror or type(error).__name__}")
            return [*answers, {"failure": _failure(item, failed, hidden)}]
        answers.append({"files": [asdict(file) for file in files]})
    return answers


def _fetcher(item: Item) -> Fetcher:
    scheme = "hf" if item.hub_id else scheme_of(item.location)
    return cast("Fetcher", import_module(FETCHERS[scheme]).fetch)


def _failure(item: Item, error: FetchFailed, hidden: Redaction) -> dict[str, Any]:
    error_type = error.error_type or NOT_THERE[item.kind]
    if item.kind != "data" and error_type == "DATA_INVALID":
        error_type = "INVALID_CONFIG"
    return {"error_type": error_type, "message": hidden(error.message), "too_large": error.too_large}
