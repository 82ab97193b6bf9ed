"""The process that publishes a model; it runs outside the sandbox, with the operator's or the user's keys.

Its request is ``{"location" | "repository": …, "order": …, "settings": …, "secrets": …}``, without an order to check
only; its answer is ``{"folder" | "url": …}`` or ``{"message": …, "transient": …}``.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from app.domain.spec.credentials import access_of
from app.domain.spec.model import Located
from app.domain.spec.secrets import OUTPUT_PATH
from workers.fetching.child.server import ProgressReporter, serve
from workers.fetching.failures import FetchFailed, Trouble
from workers.fetching.items import settings_from_json
from workers.fetching.uris import BUCKETS, scheme_of
from workers.publishing import copying
from workers.publishing.failures import NotPublished
from workers.publishing.local import LocalTarget
from workers.publishing.orders import PublishOrder, order_of

READ_STEP = 20  # log2 of a step: our own polls read a little, too


class CheckedTarget(copying.PublishTarget, Protocol):
    def check(self) -> None: ...


def work(request: dict[str, Any], heart: ProgressReporter) -> dict[str, Any]:
    """The answer to one request."""
    heart.watch(_read_from_files)
    order = order_of(request["order"]) if request["order"] else None
    try:
        answer = _push(request, order) if request.get("repository") else _copy(request, order, heart)
    except NotPublished as error:
        return {"message": error.message, "transient": error.transient}
    except FetchFailed as error:
        return {"message": error.message, "transient": isinstance(error, Trouble)}
    return answer


def _copy(request: Mapping[str, Any], order: PublishOrder | None, heart: ProgressReporter) -> dict[str, Any]:
    place = _place(request)
    if order is None:
        place.check()
        return {}
    return {"folder": copying.copy(place, order, heart.arrived)}


def _push(request: Mapping[str, Any], order: PublishOrder | None) -> dict[str, Any]:
    from workers.publishing import hub  # noqa: PLC0415 – each kind of place needs other large libraries

    repository = hub.HubRepository(**request["repository"], token=request["secrets"].get("hub_token", ""))
    if order is None:
        hub.check(repository)
        return {}
    return {"url": hub.push(repository, order)}


def _place(request: Mapping[str, Any]) -> CheckedTarget:
    location, job_id = request["location"], request["job_id"]
    scheme = scheme_of(location)
    if scheme == "file":
        return LocalTarget(location, job_id)
    settings = settings_from_json(request["settings"])
    if scheme in BUCKETS:
        from workers.fetching.filesystems import checked_path, filesystem, service  # noqa: PLC0415
        from workers.publishing.objects import ObjectTarget  # noqa: PLC0415

        known = service(
            scheme, settings, access_of(Located.from_json(request["output"]), OUTPUT_PATH, request["secrets"])
        )
        return ObjectTarget(filesystem(scheme, known), checked_path(location, known), job_id, known.gate)
    from workers.publishing.web import share  # noqa: PLC0415

    return share(location, settings, request["secrets"])


def _read_from_files() -> int:
    """Progress of libraries that report none: how much they have read, in MiB."""
    for line in Path("/proc/self/io").read_text().splitlines():
        name, _, count = line.partition(": ")
        if name == "rchar":
            return int(count) >> READ_STEP
    return 0


if __name__ == "__main__":
    sys.exit(serve(work))
