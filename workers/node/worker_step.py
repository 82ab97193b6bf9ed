"""Bootstep that makes a Celery worker a node worker: inventory, queues, heartbeat and attempt management.

Its threads need no broker, so they start before Celery's consumer, which blocks until a broker is available.
"""

import fcntl
import logging
import os
import platform
import re
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib import metadata
from typing import IO, Any

from celery import bootsteps
from celery.worker import WorkController
from sqlalchemy.exc import SQLAlchemyError

from app.database.engine import Database
from app.domain.errors import NotFound, Unavailable
from app.domain.nodes.sandboxes import BELOW, BUBBLEWRAP, PROCESS, UNDIVIDED, why_none
from app.domain.routing import dispatch_queue
from app.domain.scheduling.data_locality import Holding
from app.domain.scheduling.resources import Device
from app.domain.spec.frameworks.requirements import OWN_USER, PEERS, how_to_offer
from app.host.guarded_ports import sweep_guards
from app.host.own_users import lack_of_users, record_verdict, uid_range
from app.host.processes import place
from app.services.nodes import data_locality, registry
from app.services.nodes.registry import NodeReport
from config.queues import consume_only, node_name
from config.settings import Settings, SettingsError
from workers.fetching.cache_index import CacheIndex
from workers.fetching.outbound import outbound_proxy
from workers.node.attempt_manager import AttemptManager
from workers.node.background_thread import PeriodicThread
from workers.node.device_samples import DeviceSamples
from workers.node.inventory import found_capabilities, lack_of_gpu_files, take_inventory
from workers.node.node_config import NodeConfig, read_node_config
from workers.node.warm_starts import WarmStarts
from workers.prepare.inputs.input_library import FETCHED
from workers.prepare.packages.capabilities import package_capabilities
from workers.sandbox.sandbox import SandboxUnavailable, choose_sandbox

log = logging.getLogger(__name__)

# The name becomes part of queue names, which use ':' as a separator, and of API paths.
NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")

# A node without a sandbox detects within this time that bubblewrap was installed.
SANDBOX_RECHECK_SECONDS = 10.0


class InvalidNodeName(SettingsError):
    """The configured name or the host name is not a valid node name, or another worker uses it."""


class NodeStep(bootsteps.StartStopStep):
    """``worker.app.runtime`` provides settings and database, and receives our ``on_nudge`` callback.

    Stopping detaches: supervisors run in their own sessions, continue, and are adopted by the next node worker.
    """

    def __init__(self, worker: WorkController, **options: Any) -> None:
        super().__init__(worker, **options)
        runtime = worker.app.runtime
        self._node = NodeThreads(runtime.settings, runtime.database)
        self._name_lock = lock_node_name(runtime.settings)
        consume_only(worker.app.amqp.queues, self._node.queues)
        runtime.on_nudge = self._node.nudge

    def start(self, worker: WorkController) -> None:
        del worker
        self._node.start()

    def stop(self, worker: WorkController) -> None:
        del worker
        self._node.stop()
        self._name_lock.close()

    terminate = stop


class NodeThreads:
    """This machine: its inventory report, and the heartbeat and attempt threads."""

    def __init__(self, settings: Settings, db: Database) -> None:
        self._db = db
        config = read_node_config(settings.node.config)
        heartbeat_seconds = config.limits.heartbeat_seconds or settings.node.heartbeat_seconds
        self._report = make_report(settings, config)
        self._settings = settings
        self._registered = False
        self._sandbox_checked_at = time.monotonic()
        self._holdings = CacheIndex(settings.data.dir.resolve() / "cache" / FETCHED)
        self._reported: Mapping[str, Holding] | None = None  # last reported cache contents
        self._attempts = AttemptManager(settings, db, self._report.name)
        self._heart = PeriodicThread("heartbeat", self._heartbeat, heartbeat_seconds)
        self._care = PeriodicThread("attempts", self._attempts.poll, settings.node.poll_seconds)
        self._samples = DeviceSamples(db, self._report.name, self._report.devices)
        # Not before: the start of the platform itself needs the processor.
        self._warm = WarmStarts(settings, may_start=lambda: self._registered)

    @property
    def queues(self) -> list[str]:
        """The queues with messages for this node: one per device type."""
        types = sorted({device.type for device in self._report.devices})
        return [dispatch_queue(kind, self._report.name) for kind in types]

    def start(self) -> None:
        self._heart.start()
        self._care.start()
        self._samples.start()
        self._warm.start()

    def stop(self) -> None:
        self._care.stop()
        self._samples.stop()
        self._heart.stop()
        self._say_stopped()
        self._warm.stop()

    def _say_stopped(self) -> None:
        """No job is placed here until a worker registers again; without a database the missing heartbeats say it."""
        if self._registered:
            self._registered = False
            with suppress(SQLAlchemyError, Unavailable):
                registry.mark_stopped(self._db, self._report.name)

    def nudge(self, job_id: str) -> None:
        """Have the job's supervisor read its control requests now; returns at once."""
        self._attempts.nudge(job_id)
        self._care.wake()

    def _heartbeat(self) -> None:
        self._recheck_sandbox()
        if not self._registered:
            self._attempts.clean()  # before offering devices that a dead attempt's processes may still use
            state = registry.register(self._db, self._report)
            self._registered, self._reported = True, None
            self._samples.wake()
            log.info("node %s offers %d devices and is %s", self._report.name, len(self._report.devices), state)
            return
        try:
            registry.heartbeat(self._db, self._report.name)
        except NotFound:
            self._registered = False  # the row was deleted, or the database replaced: register again
            self._heart.wake()
            return
        held = self._holdings.now()
        if held != self._reported:
            data_locality.report(self._db, self._report.name, held)
            self._reported = held

    def _recheck_sandbox(self) -> None:
        now = time.monotonic()
        if not why_none(self._report.sandbox) or now < self._sandbox_checked_at + SANDBOX_RECHECK_SECONDS:
            return
        self._sandbox_checked_at = now
        report = self._report
        found = _sandbox(self._settings, report.devices, report.capabilities, was=report.sandbox)
        if found != report.sandbox:
            self._report, self._registered = replace(report, sandbox=found), False


def make_report(settings: Settings, config: NodeConfig) -> NodeReport:
    """This machine's report. Raises InvalidNodeName, and SandboxUnavailable when the configured sandbox is
    impossible.
    """
    inventory = take_inventory(config, settings.data.dir)
    capabilities = tuple(sorted({*config.capabilities, *_found_capabilities(settings)}))
    return NodeReport(
        name=_checked(node_name(settings)),
        devices=inventory.devices,
        cpu_cores=inventory.cpu_cores,
        ram_mb=inventory.ram_mb,
        storage_mb=inventory.storage_mb,
        sandbox=_sandbox(settings, inventory.devices, capabilities),
        version=_version(),
        boot_id=place(),
        labels=config.labels,
        capabilities=capabilities,
        limits=config.jobs,
        arch=platform.machine()[:32],
    )


def _found_capabilities(settings: Settings) -> tuple[str, ...]:
    uids, data_dir = settings.node.uids, settings.data.dir
    found = found_capabilities(settings.node.sandbox, data_dir, uids=uids, network=settings.node.network)
    lack = "" if OWN_USER in found else lack_of_users(uids, data_dir) or "this node has no sandbox"
    record_verdict(data_dir, lack)
    if PEERS in found:
        with suppress(OSError):  # those that are left block a port each, and the next attempt tries again
            sweep_guards(uid_range(uids))
    if lack and uids and os.geteuid() == 0:
        log.warning("attempts on this node have the worker's user, and none of their own: %s", lack)
    return (*found, *package_capabilities(settings.packages, settings.node.software, outbound_proxy(settings.fetch)))


def _sandbox(settings: Settings, devices: Sequence[Device], capabilities: Collection[str], *, was: str = "") -> str:
    """The sandbox of this node, or why it takes no jobs. ``was`` is the last known state, which is not logged again.

    Raises SandboxUnavailable when the configured one is impossible.
    """
    found, why = _chosen(settings.node.sandbox)
    if not why and (missing := sorted(set(settings.node.sandbox_least).difference(capabilities))):
        found, why = BELOW, "; ".join(map(how_to_offer, missing))
    if not why and settings.node.sandbox != PROCESS:
        found, why = (UNDIVIDED, lack) if (lack := lack_of_gpu_files(devices)) else (found, "")
    if why and found != was:
        log.warning("this node accepts no jobs: it %s: %s", why_none(found), why)
    return found


def _chosen(wanted: str) -> tuple[str, str]:
    """What this machine has, and why it is none."""
    try:
        return choose_sandbox(wanted).reported, ""
    except SandboxUnavailable as error:
        if wanted == BUBBLEWRAP:
            raise
        return error.kind, str(error)


def _checked(name: str) -> str:
    if not NODE_NAME.fullmatch(name):
        raise InvalidNodeName(
            [
                (
                    f"{name!r} is not a valid node name: use 1 to 63 of the characters a-z, A-Z, 0-9, '.', '_' and "
                    "'-', starting with a letter or digit; set TRAINYARD_NODE_NAME"
                )
            ]
        )
    return name


def lock_node_name(settings: Settings) -> IO[str]:
    """Lock this node's name for the life of the process: two workers with one name would treat each other's attempts
    as orphans.
    """
    name = node_name(settings)
    path = settings.data.dir / "run" / f"node-{name}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = path.open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        lock.close()
        raise InvalidNodeName(
            [f"a node worker named {name} already runs on {settings.data.dir}; choose another name with --name"]
        ) from error
    return lock


def _version() -> str:
    try:
        return metadata.version("trainyard")
    except metadata.PackageNotFoundError:
        return ""
