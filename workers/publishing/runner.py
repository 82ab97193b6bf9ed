"""The supervisor's side of publishing: runs child processes for the job's destinations, and can stop them."""

import logging
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from app.domain.spec.credentials import CREDENTIALS, OPTIONS, access_of
from app.domain.spec.secrets import OUTPUT_PATH, credential_path
from app.services.attempts.work_orders import WorkOrder
from config.settings import Settings
from workers.attempt_failed import AttemptFailed
from workers.fetching.child.client import run_child
from workers.fetching.items import settings_to_json
from workers.fetching.outbound import proxy_variables
from workers.job_secrets import opened_secrets
from workers.publishing.failures import NotPublished
from workers.publishing.orders import PublishOrder
from workers.publishing.places import Destination, destination

log = logging.getLogger(__name__)

TRIES = 5
BACKOFF_FACTOR = 4.0  # factor between pauses
OWN_CREDENTIALS = credential_path(OUTPUT_PATH, "")  # how the paths of the output's begin
HUB_TOKEN = "output_config.hub_token"  # noqa: S105 – where it stands


class PublicationStopped(Exception):
    """The publication was stopped and its result is not needed."""


@dataclass(kw_only=True)
class Published:
    """The result: the model's new URIs, empty where none was requested, and what failed."""

    uri: str = ""
    beside: bool = False  # in a subfolder, because the directory contains foreign files
    hub_url: str = ""
    failures: list[str] = field(default_factory=list)
    passing: list[str] = field(default_factory=list)  # failures that may be transient

    @contextmanager
    def noting(self, what: str) -> Iterator[None]:
        """Record a failure, so that one destination does not prevent the other."""
        try:
            yield
        except NotPublished as error:
            (self.passing if error.transient else self.failures).append(f"{what}: {error.message}")


@dataclass(frozen=True, kw_only=True)
class PublishOptions:
    """The destinations in ``output_config``. ``name``: of the field that has ``output_path``."""

    output_path: str
    hub_repository: str = ""
    hub_private: bool = True
    name: str = "output_path"

    def __bool__(self) -> bool:
        return bool(self.output_path or self.hub_repository)


def publish_options(work: WorkOrder) -> PublishOptions:
    output = work.document.output_config
    return PublishOptions(
        output_path=output.output_path or "",
        hub_repository=(output.hub_repo_id or "") if output.push_to_hub else "",
        hub_private=output.hub_private,
    )


def log_options(work: WorkOrder, folder: str = "") -> PublishOptions:
    """The destination of logs, or a folder in it."""
    place = (work.document.output_config.log_path or "").rstrip("/")
    return PublishOptions(output_path=f"{place}/{folder}" if place and folder else place, name="log_path")


class Publication:
    """Publishes one model on a thread of its own, or what else ``options`` say; ``order`` None only checks whether it
    would work.
    """

    def __init__(
        self,
        settings: Settings,
        work: WorkOrder,
        order: PublishOrder | None,
        *,
        options: PublishOptions | None = None,
        on_done: Callable[[], None] = lambda: None,
    ) -> None:
        self._settings = settings
        self._work = work
        self._order = order
        self._options = publish_options(work) if options is None else options
        self._on_done = on_done
        self._stopping = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="publish", daemon=True)
        self.result: Published | None = None  # when all destinations were tried

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop what still runs; returns when nothing does."""
        with self._lock:
            self._stopping.set()
            if self._process is not None:
                self._process.kill()
        self._thread.join()

    def carry_out(self) -> Published:
        """Run on the calling thread. Raises PublicationStopped."""
        options, result = self._options, Published()
        if options.output_path:
            with result.noting(f"{options.name} {options.output_path}"):
                self._copy(options.output_path, result)
        if options.hub_repository:
            with result.noting("push_to_hub"):
                self._push(options, result)
        return result

    def _run(self) -> None:
        try:
            self.result = self.carry_out()
        except PublicationStopped:
            return
        except Exception as error:
            log.exception("publishing failed")
            self.result = Published(failures=[f"a fault of the platform: {type(error).__name__}: {error}"])
        self._on_done()

    def _copy(self, output_path: str, result: Published) -> None:
        output = self._work.document.output_config
        secrets = opened_secrets(self._settings, self._work.sealed_secrets)
        access = access_of(output, OUTPUT_PATH, secrets)
        target: Destination = destination(self._settings, self._work.project, output_path, access)
        answer = self._answer({"location": target.location}, what=output_path)
        result.beside = bool(answer.get("folder"))
        result.uri = target.shown(answer.get("folder", ""))

    def _push(self, options: PublishOptions, result: Published) -> None:
        repository = {"name": options.hub_repository, "private": options.hub_private}
        answer = self._answer({"repository": repository}, what=options.hub_repository)
        result.hub_url = answer.get("url", "")

    def _answer(self, request: dict[str, Any], *, what: str) -> dict[str, Any]:
        """The child's answer, after retries. Raises NotPublished, PublicationStopped."""
        pause = self._settings.publish.retry_seconds
        for left in reversed(range(TRIES if self._order is not None else 1)):
            answer = self._request(request, what)
            if "message" not in answer:
                return answer
            if not answer["transient"] or not left:
                break
            log.warning("publishing is retried in %g s: %s", pause, answer["message"])
            if self._stopping.wait(pause):
                raise PublicationStopped
            pause *= BACKOFF_FACTOR
        raise NotPublished(answer["message"], transient=answer["transient"])

    def _request(self, request: dict[str, Any], what: str) -> dict[str, Any]:
        output = self._work.document.output_config
        secrets = opened_secrets(self._settings, self._work.sealed_secrets)
        common = {
            "job_id": self._work.job_id,
            "order": self._order.document() if self._order is not None else None,
            "settings": settings_to_json(self._settings.fetch),
            "secrets": {"hub_token": secrets.get(HUB_TOKEN, "")}
            | {name: value for name, value in secrets.items() if name.startswith(("forwarded.", OWN_CREDENTIALS))},
            "output": {CREDENTIALS: dict(output.credentials), OPTIONS: dict(output.storage_options)},
        }
        stalled, is_of_hub = self._settings.publish.stalled_seconds, "repository" in request
        try:
            answer: dict[str, Any] = run_child(
                "workers.publishing",
                common | request,
                what=what,
                stalled_seconds=stalled,
                # Only the hub's client reads these, as when a model is fetched.
                proxies=is_of_hub and not self._settings.fetch.proxy,
                variables=proxy_variables(self._settings.fetch) if is_of_hub else {},
                on_start=self._started,
            )
        except AttemptFailed as error:
            answer = {"message": error.message, "transient": True}
        finally:
            with self._lock:
                self._process = None
        if self._stopping.is_set():
            raise PublicationStopped
        return answer

    def _started(self, process: subprocess.Popen[bytes]) -> None:
        with self._lock:
            self._process = process
            if self._stopping.is_set():
                process.kill()
