"""The bootstep that makes a Celery worker a node: inventory, queues, heartbeat, and care for this machine's attempts.

Its threads need no broker: they start before Celery's consumer, which waits for one for ever.
"""

import fcntl
import logging
import platform
import re
import time
from collections.abc import Mapping
from dataclasses import replace
from importlib import metadata
from typing import IO, Any

from celery import bootsteps

from app.database.engine import Database
from app.domain.errors import NotFound
from app.domain.nodes.sandboxes import BUBBLEWRAP, why_none
from app.domain.routing import dispatch_queue
from app.domain.scheduling.data_locality import Holding
from app.host.processes import place
from app.services.nodes import data_locality, registry
from app.services.nodes.registry import NodeReport
from config.queues import consume_only, node_name
from config.settings import Settings, SettingsError
from workers.fetching.cache_index import Holdings
from workers.node.attempt_manager import AttemptKeeper
from workers.node.background_thread import Background
from workers.node.inventory import found_capabilities, take_inventory
from workers.node.node_config import NodeConfig, read_node_config
from workers.prepare.input_library import FETCHED
from workers.sandbox.sandbox import NoSandbox, choose_sandbox

log = logging.getLogger(__name__)

# It becomes part of queue names, where ':' separates, and of paths in the API.
NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")

# A node without a sandbox sees within this time that bubblewrap was installed.
LOOK_AGAIN_SECONDS = 10.0


class BadNodeName(SettingsError):
    """The configured name, or the host's, can't name a node, or another worker has it."""


class NodeStep(bootsteps.StartStopStep):
    """``worker.app.runtime`` holds settings and database, and takes our ``on_nudge``.

    Stopping detaches: supervisors have sessions of their own, live on, and are found again by the next worker.
    """

    def __init__(self, worker: Any, **options: Any) -> None:
        super().__init__(worker, **options)
        runtime = worker.app.runtime
        self._node = Node(runtime.settings, runtime.database)
        self._name_lock = take_name(runtime.settings)
        consume_only(worker.app, self._node.queues)
        runtime.on_nudge = self._node.nudge

    def start(self, worker: Any) -> None:
        del worker
        self._node.start()

    def stop(self, worker: Any) -> None:
        del worker
        self._node.stop()
        self._name_lock.close()

    terminate = stop


class Node:
    """This machine: what it reports of itself, and the two threads that do it."""

    def __init__(self, settings: Settings, db: Database) -> None:
        self._db = db
        config = read_node_config(settings.node.config)
        heartbeat_seconds = config.limits.heartbeat_seconds or settings.node.heartbeat_seconds
        self._report = make_report(settings, config)
        self._wanted_sandbox = settings.node.sandbox
        self._registered = False
        self._looked_for_sandbox = time.monotonic()
        self._holdings = Holdings(settings.data.dir.resolve() / "cache" / FETCHED)
        self._told: Mapping[str, Holding] | None = None  # of what the cache holds
        self._keeper = AttemptKeeper(settings, db, self._report.name)
        self._heart = Background("heartbeat", self._beat, heartbeat_seconds)
        self._care = Background("attempts", self._keeper.look, settings.node.poll_seconds)

    @property
    def queues(self) -> list[str]:
        """Where messages for this node arrive: one queue for each type of its devices."""
        types = sorted({device.type for device in self._report.devices})
        return [dispatch_queue(kind, self._report.name) for kind in types]

    def start(self) -> None:
        self._heart.start()
        self._care.start()

    def stop(self) -> None:
        self._care.stop()
        self._heart.stop()

    def nudge(self, job_id: str) -> None:
        """Have the job's supervisor look at its wishes now; returns at once."""
        self._keeper.nudge(job_id)
        self._care.wake()

    def _beat(self) -> None:
        self._look_for_sandbox()
        if not self._registered:
            self._keeper.clean()  # before anything is offered that a dead attempt's processes may still use
            state = registry.register(self._db, self._report)
            self._registered, self._told = True, None
            log.info("node %s offers %d devices, and is %s", self._report.name, len(self._report.devices), state)
            return
        try:
            registry.heartbeat(self._db, self._report.name)
        except NotFound:
            self._registered = False  # somebody removed it, or the database is another one: introduce ourselves again
            self._heart.wake()
            return
        held = self._holdings.now()
        if held != self._told:
            data_locality.report(self._db, self._report.name, held)
            self._told = held

    def _look_for_sandbox(self) -> None:
        now = time.monotonic()
        if not why_none(self._report.sandbox) or now < self._looked_for_sandbox + LOOK_AGAIN_SECONDS:
            return
        self._looked_for_sandbox = now
        found = _sandbox(self._wanted_sandbox, was=self._report.sandbox)
        if found != self._report.sandbox:
            self._report, self._registered = replace(self._report, sandbox=found), False


def make_report(settings: Settings, config: NodeConfig) -> NodeReport:
    """What this machine has. Raises BadNodeName, and NoSandbox for a sandbox that is demanded but impossible."""
    inventory = take_inventory(config, settings.data.dir)
    return NodeReport(
        name=_checked(node_name(settings)),
        devices=inventory.devices,
        cpu_cores=inventory.cpu_cores,
        ram_mb=inventory.ram_mb,
        storage_mb=inventory.storage_mb,
        sandbox=_sandbox(settings.node.sandbox),
        version=_version(),
        boot_id=place(),
        labels=config.labels,
        capabilities=tuple(sorted({*config.capabilities, *found_capabilities()})),
        limits=config.jobs,
        arch=platform.machine()[:32],
    )


def _sandbox(wanted: str, *, was: str = "") -> str:
    """How jobs are kept apart here, or why they can't be. ``was``: what is known already, and need not be logged."""
    try:
        return choose_sandbox(wanted).kind
    except NoSandbox as error:
        if wanted == BUBBLEWRAP:
            raise
        if error.kind != was:
            log.warning("this node takes no jobs until it has a sandbox: %s", error)
        return error.kind


def _checked(name: str) -> str:
    if not NODE_NAME.fullmatch(name):
        raise BadNodeName(
            [
                (
                    f"{name!r} can't be a node's name: it needs 1 to 63 of the characters a-z, A-Z, 0-9, '.', '_' and "
                    "'-', with a letter or digit first; set TRAINYARD_NODE_NAME"
                )
            ]
        )
    return name


def take_name(settings: Settings) -> IO[str]:
    """Two workers of one name would take each other's attempts for orphans; the lock ends with the process."""
    name = node_name(settings)
    path = settings.data.dir / "run" / f"node-{name}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = path.open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        lock.close()
        raise BadNodeName(
            [f"a node worker named {name} runs on {settings.data.dir} already; name this one otherwise with --name"]
        ) from error
    return lock


def _version() -> str:
    try:
        return metadata.version("trainyard")
    except metadata.PackageNotFoundError:
        return ""
