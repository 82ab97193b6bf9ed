"""From what a job names to what lies on this machine: its model, data and script, by the reading rules."""

import contextlib
import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from app.domain.errors import BadSpec
from app.domain.locations import ReadingRules, candidates, is_hub_id, job_of_path, local_path, readable
from workers.failures import AttemptFailed

FETCH_LOOK_SECONDS = 5.0
NO_MODEL = "none"  # what a CUSTOM job names that brings or makes its own model
UNREADABLE = (
    "it lies outside every directory that jobs may read; move it below one of them, or have the administrator add "
    "the directory to TRAINYARD_STORAGE_ROOTS"
)


@dataclass(frozen=True, kw_only=True)
class Model:
    """A model directory, and what must be visible for it to be readable (a hub cache links out of it)."""

    path: Path
    visible: Path


@dataclass(frozen=True, kw_only=True)
class Library:
    """What jobs of one project may read here, and where fetched models are kept."""

    rules: ReadingRules
    cache_dir: Path
    project: str
    project_of_job: Callable[[str], str | None]
    stalled_seconds: float = 600.0  # a download that grows no more for that long is given up


def find_model(library: Library, model_id: str, revision: str | None = None) -> Model:
    """A local directory if there is one, else the model of that id from the hub. Raises AttemptFailed."""
    found = _existing(library, model_id, "MODEL_NOT_FOUND", "base model")
    if found is not None:
        if revision:
            raise AttemptFailed(
                "INVALID_CONFIG",
                f"base_model.revision is {revision}, but {model_id} is a local directory, which has no revisions; "
                "leave revision out",
            )
        if not found.is_dir():
            raise AttemptFailed("MODEL_NOT_FOUND", f"base model {model_id} is not a directory")
        if not os.access(found, os.R_OK | os.X_OK) or not any(found.iterdir()):
            raise AttemptFailed("MODEL_NOT_FOUND", f"base model directory {model_id} is empty or can't be read")
        return Model(path=found, visible=_visible(library, found))
    if is_hub_id(model_id):
        return fetch_from_hub(library, model_id, revision)
    raise AttemptFailed("MODEL_NOT_FOUND", f"base model {model_id} does not exist on this node")


def find_data(library: Library, location: str, *, directories: bool = False) -> Path:
    """A regular, readable, non-empty file (``directories``: or a directory). Raises AttemptFailed."""
    found = _existing(library, location, "DATA_NOT_FOUND", "data source")
    if found is None:
        raise AttemptFailed("DATA_NOT_FOUND", f"data source {location} does not exist on this node")
    status = found.stat()
    if directories and stat.S_ISDIR(status.st_mode):
        return found
    if not stat.S_ISREG(status.st_mode):
        raise AttemptFailed("DATA_INVALID", f"data source {location} is not a regular file")
    if not os.access(found, os.R_OK):
        raise AttemptFailed("DATA_NOT_FOUND", f"data source {location} can't be read: permission denied")
    if status.st_size == 0:
        raise AttemptFailed("DATA_INVALID", f"data source {location} is empty")
    return found


def find_script(library: Library, location: str) -> Path:
    """The user's script. Raises AttemptFailed."""
    found = _existing(library, location, "INVALID_CONFIG", "custom script")
    if found is None or not found.is_file():
        raise AttemptFailed("INVALID_CONFIG", f"custom script {location} is not a file on this node")
    return found


def fetch_from_hub(library: Library, model_id: str, revision: str | None) -> Model:
    """Download into this node's cache, in a process of its own: the hub's client is large, and it can hang."""
    library.cache_dir.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "workers.hub_fetch", "--model", model_id, "--cache-dir", str(library.cache_dir)]
    command += ["--revision", revision or "", "--die-with", str(os.getpid())]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
        said = _hear_while_it_grows(library, process, model_id)
    answer = json.loads(said.splitlines()[-1]) if said.strip() else {}
    if "path" not in answer:
        error_type = answer.get("error_type", "INTERNAL")
        raise AttemptFailed(error_type, answer.get("message", f"fetching {model_id} ended with {process.returncode}"))
    path = Path(answer["path"])
    return Model(path=path, visible=path.parents[1])


def _hear_while_it_grows(library: Library, process: subprocess.Popen[str], model_id: str) -> str:
    """What the process prints until its end. Raises AttemptFailed when nothing has arrived for too long."""
    directory = library.cache_dir / f"models--{model_id.replace('/', '--')}"
    size, grown_at = _stored_bytes(directory), time.monotonic()
    while True:
        try:
            return process.communicate(timeout=min(FETCH_LOOK_SECONDS, library.stalled_seconds))[0]
        except subprocess.TimeoutExpired:
            before, size = size, _stored_bytes(directory)
        if size != before:
            grown_at = time.monotonic()
        elif time.monotonic() - grown_at >= library.stalled_seconds:
            process.kill()
            message = f"base model {model_id}: nothing has arrived from the hub for {library.stalled_seconds:g} s"
            raise AttemptFailed("STORAGE_ERROR", message)


def _stored_bytes(directory: Path) -> int:
    """Both what files hold and what they occupy: some downloads fill a file that has its full size from the start."""
    total = 0
    for path in directory.glob("blobs/*"):
        with contextlib.suppress(OSError):
            status = path.stat()
            total += status.st_size + 512 * status.st_blocks
    return total


def _visible(library: Library, model: Path) -> Path:
    """In a hub's cache, .../models--owner--name/snapshots/<commit>, the files are links to .../blobs."""
    repository = model.parents[1] if model.parent.name == "snapshots" else model
    return repository if repository.name.startswith("models--") and _allowed(library, str(repository)) else model


def _existing(library: Library, location: str, error_type: str, noun: str) -> Path | None:
    """The file or directory that a location names, links followed; None when there is none where jobs may read."""
    try:
        path = local_path(location, field="")
    except BadSpec as error:
        raise AttemptFailed(error_type, f"{noun} {location}: {error.message}") from error
    if path is None:
        raise AttemptFailed(error_type, f"{noun} {location}: this scheme is not supported; give a path")
    for real in candidates(path, library.rules):
        if not _allowed(library, real):
            # Said whether it exists or not: the answer must not tell what lies where nobody may look.
            if Path(path).is_absolute():
                raise AttemptFailed(error_type, f"{noun} {location} can't be used: {UNREADABLE}")
            continue
        if Path(real).exists():
            return Path(real)
    return None


def _allowed(library: Library, real_path: str) -> bool:
    if not readable(real_path, library.rules):
        return False
    job_id = job_of_path(real_path, library.rules)
    return job_id is None or library.project_of_job(job_id) == library.project
