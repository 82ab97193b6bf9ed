"""Checks of this machine: storage, disk, sandbox, GPU driver, and listening addresses."""

import ctypes
import os
import secrets
import shutil
from pathlib import Path

from sqlalchemy import select

from app.domain.errors import NotFound
from app.domain.ids import new_id
from app.domain.nodes.sandboxes import BUBBLEWRAP, LANDLOCK, PROCESS, WITHOUT_NAMESPACES, way_out
from app.host.bubblewrap import lack_of_sandbox
from app.host.computing import missing_locks
from app.host.fork_servers import agents_socket, is_listening, supervisors_socket
from app.host.guarded_ports import lack_of_guards
from app.host.images import lack_of_images
from app.host.landlock import lack_of_landlock
from app.host.own_users import lack_of_users
from app.models import Artifact, Checkpoint
from app.services.operations.data_dir import is_without_sandbox
from app.services.operations.diagnosis.broker import is_loopback
from app.services.operations.diagnosis.findings import Findings, failed, fine, size, skipped, warning
from app.services.operations.diagnosis.site import Site
from app.storage.object_keys import artifact_key, checkpoint_key

SAMPLE = 5
LITTLE_BYTES, TOO_LITTLE_BYTES = 10 * 1024**3, 1024**3
PCI = Path("/sys/bus/pci/devices")
NVIDIA_VENDOR, DISPLAY_CLASSES = "0x10de", ("0x0300", "0x0302")


def storage(site: Site) -> Findings:
    """Writes, reads and deletes a small file, as nodes and the API do."""
    root = _storage_path(site)
    if root is not None and not root.is_dir():
        return failed(
            f"there is no directory {root}", "is it not mounted, or is TRAINYARD_STORAGE_URL wrong? Create it"
        )
    key, content = f"doctor-{new_id('file')}", secrets.token_bytes(16)
    site.storage.write(key, content)
    try:
        if site.storage.read(key) != content:
            return failed("the storage returns other bytes than were written", "check its logs")
    finally:
        site.storage.delete_tree(key)
    return fine("files can be written, read and deleted")


def stored_files(site: Site) -> Findings:
    """Files recorded by nodes must exist in this process's storage; otherwise they use different storages."""
    with site.db.read() as session:
        checkpoints = session.execute(
            select(Checkpoint.job_id, Checkpoint.id)
            .where(Checkpoint.deleted_at.is_(None))
            .order_by(Checkpoint.id.desc())
            .limit(SAMPLE)
        ).all()
        artifacts = session.execute(
            select(Artifact.job_id, Artifact.path)
            .where(~Artifact.pending)
            .order_by(Artifact.job_id.desc())
            .limit(SAMPLE)
        ).all()
    keys = [checkpoint_key(job, name) for job, name in checkpoints] + [
        artifact_key(job, path) for job, path in artifacts
    ]
    missing = [key for key in keys if not _is_there(site, key)]
    if missing:
        return failed(
            f"{len(missing)} of the {len(keys)} newest files that nodes recorded are not in the storage here, such as "
            f"{missing[0]}",
            "give all processes the same TRAINYARD_STORAGE_URL, and mount the same file system there on every machine",
        )
    return fine(f"the newest {len(keys)} recorded files are here") if keys else skipped("nothing is recorded yet")


def disk(site: Site) -> Findings:
    places = {"the data directory": site.settings.data.dir, "the storage": _storage_path(site)}
    findings: Findings = []
    for what, path in places.items():
        if path is None or not path.exists():
            continue
        free = shutil.disk_usage(path).free
        if free < LITTLE_BYTES:
            found = failed if free < TOO_LITTLE_BYTES else warning
            findings += found(
                f"{what} ({path}) has only {size(free)} free",
                "delete unneeded data (`trainyard db prune`, docs/how-to/retention.md), or use a larger disk",
            )
    return findings or fine("the disks have free space")


def cache_size(site: Site) -> Findings:
    directory = site.settings.data.dir
    if not directory.exists():
        return skipped(f"there is no data directory {directory} here")
    total, most = shutil.disk_usage(directory).total, site.settings.cache.max_bytes
    if most > total:
        return warning(
            f"a node's cache may grow to {size(most)}, but its disk holds {size(total)}: the cache will fill it",
            "set TRAINYARD_CACHE_MAX_BYTES to a part of the disk, if a node runs on this machine",
        )
    return fine(f"a node's cache stops at {size(most)} of {size(total)}")


def sandbox(site: Site) -> Findings:
    configured = site.settings.node.sandbox
    if is_without_sandbox(site.settings):
        return warning(
            "jobs run without a sandbox (`trainyard up --no-sandbox`), with all permissions of its user",
            "install bubblewrap (apt install bubblewrap), and start `trainyard up` without that option",
        )
    if configured == PROCESS:
        return warning("jobs run without a sandbox (TRAINYARD_NODE_SANDBOX)", "set it to auto or bubblewrap")
    lack = lack_of_landlock() if configured == LANDLOCK else lack_of_sandbox()
    if lack is None:
        return fine("Landlock works" if configured == LANDLOCK else f"bubblewrap works, {_second_lock()}")
    found = failed if configured == BUBBLEWRAP else warning
    return found(f"{lack}: a node here accepts no jobs", way_out(lack.kind))


def _second_lock() -> str:
    lack = lack_of_landlock(in_sandbox=True)
    return "with Landlock as a second lock" if lack is None else f"without Landlock as a second lock ({lack.detail})"


def search_process(site: Site) -> Findings:
    """What the process that computes the values of sweeps reaches on this machine beside its libraries."""
    del site
    reached = missing_locks()
    if reached:
        return warning(
            f"the process that computes the values of sweeps reaches the {' and the '.join(reached)} of its user",
            "install libseccomp (apt install libseccomp2), and use Linux 6.2 or newer with Landlock switched on",
        )
    return fine("the process that computes the values of sweeps reaches no network, and no file but of its libraries")


def own_users(site: Site) -> Findings:
    settings = site.settings
    if settings.node.sandbox in WITHOUT_NAMESPACES or is_without_sandbox(settings):
        return skipped("attempts here have the worker's user: they run without a sandbox")
    if not settings.data.dir.exists():
        return skipped(f"there is no data directory {settings.data.dir} here")
    if lack := lack_of_users(settings.node.uids, settings.data.dir):
        found = f"attempts here have the host user of the worker, and none of their own: {lack}"
        may_have = settings.node.uids and os.geteuid() == 0
        return warning(found, "docs/reference/isolation.md#a-user-of-its-own") if may_have else skipped(found)
    return fine(f"each attempt has a host user of its own, of {settings.node.uids}, {_guards(settings.node.uids)}")


def _guards(uids: str) -> str:
    lack = lack_of_guards(uids)
    return f"but not its ports in the machine's network ({lack})" if lack else "and its ports in the machine's network"


def images(site: Site) -> Findings:
    settings = site.settings
    if settings.node.sandbox in WITHOUT_NAMESPACES or is_without_sandbox(settings):
        return skipped("a node here offers no images: its jobs run without a sandbox")
    if not settings.data.dir.exists():
        return skipped(f"there is no data directory {settings.data.dir} here")
    sources = settings.images.sources
    if lack := lack_of_images(settings.data.dir):
        found = f"a node here offers no images: {lack}"
        return warning(found, "apt install skopeo umoci, and start the worker again") if sources else skipped(found)
    place = f"of {', '.join(sources)}, and of the storage roots" if sources else "of the storage roots"
    return fine(f"jobs may use images {place}")


def warm_starts(site: Site) -> Findings:
    """Which processes of jobs node workers of this data directory fork, as far as its fork servers show."""
    if site.settings.node.warm == "off":
        return fine("every process of a job starts as a program (TRAINYARD_NODE_WARM)")
    directory = site.settings.data.dir
    if not is_listening(supervisors_socket(directory)):
        return skipped(f"no node worker with the data directory {directory} has a process to fork from")
    if site.settings.node.warm == "supervisors":
        return fine("supervisors and preflights are forked, ranks start as programs (TRAINYARD_NODE_WARM)")
    if is_listening(agents_socket(directory)):
        return fine("supervisors, preflights and ranks are forked")
    return warning(
        "ranks start as programs, which takes some 5 s more: the process from which they are forked does not run",
        "it starts 15 s after the node worker, with 2 GiB of available memory; if it has not, see the worker's log",
    )


def gpu_driver(site: Site) -> Findings:
    del site
    cards = [device.name for device in _devices() if _is_nvidia_gpu(device)]
    driver = _nvml_problem()
    if driver is None:
        return fine("the NVIDIA driver answers")
    if cards:
        return failed(
            f"{len(cards)} NVIDIA device(s) are there, but {driver}: a node here offers only CPU slots",
            "install the NVIDIA driver, and the extra trainyard[gpu]; in a container, pass the devices in",
        )
    return skipped("there is no NVIDIA GPU in this machine")


def api_address(site: Site) -> Findings:
    way_out = (
        "bind it to 127.0.0.1 behind a proxy that terminates TLS (deploy/nginx, deploy/caddy), or to a private network"
    )
    return _address("the API", site.settings.api.host, "keys cross", way_out)


def flower_address(site: Site) -> Findings:
    way_out = "bind it to 127.0.0.1, and reach it by an SSH tunnel or behind the proxy"
    return _address("Flower", site.settings.flower.host, "its password crosses", way_out)


def _address(who: str, host: str, what_crosses: str, way_out: str) -> Findings:
    if is_loopback(host):
        return fine(f"{who} listens on {host} alone")
    return warning(f"{who} listens on {host} without TLS: {what_crosses} that network in the clear", way_out)


def _is_there(site: Site, key: str) -> bool:
    try:
        return site.storage.exists(key)
    except NotFound:
        return False


def _storage_path(site: Site) -> Path | None:
    here = site.storage.local_path("jobs")
    return here.parent if here is not None else None


def _devices() -> list[Path]:
    return sorted(PCI.iterdir()) if PCI.is_dir() else []


def _is_nvidia_gpu(device: Path) -> bool:
    try:
        vendor, kind = (device / "vendor").read_text().strip(), (device / "class").read_text().strip()
    except OSError:
        return False
    return vendor == NVIDIA_VENDOR and kind.startswith(DISPLAY_CLASSES)


def _nvml_problem() -> str | None:
    """The driver's problem, found through its own library; None if it works."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return "the driver's library libnvidia-ml.so.1 is not installed"
    code = nvml.nvmlInit_v2()
    if code:
        return f"the driver does not answer (nvmlInit says {code})"
    nvml.nvmlShutdown()
    return None
