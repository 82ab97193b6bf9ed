"""Folders and secrets of the data directory. Standard library only, so that `trainyard up` can start its processes
before slow imports.
"""

import base64
import contextlib
import os
import secrets
from dataclasses import replace
from pathlib import Path

from config.settings import Settings

FOLDERS = ("files", "run", "log")


def prepare_directory(settings: Settings) -> Settings:
    """Create missing folders and secrets; returns the settings with the secrets.

    Safe to call concurrently: all processes get the same secrets.
    """
    settings.data.dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name in FOLDERS:
        (settings.data.dir / name).mkdir(exist_ok=True, mode=0o700)
    security, flower = settings.security, settings.flower
    if not security.secret_key:
        fresh = base64.urlsafe_b64encode(os.urandom(32)).decode()  # what Fernet takes
        security = replace(security, secret_key=keep_secret(settings.secret_key_file, fresh))
    if not flower.password:
        fresh = secrets.token_urlsafe(18)
        flower = replace(flower, password=keep_secret(settings.data.dir / "flower.password", fresh))
    return replace(settings, security=security, flower=flower)


def url_file(settings: Settings) -> Path:
    """The file to which `trainyard up` writes the URL of its API."""
    return settings.data.dir / "run" / "url"


def write_roots(settings: Settings) -> None:
    """Write the directories that jobs may read, for processes started alone."""
    _roots_file(settings).write_text(":".join(map(str, settings.storage.roots)))


def read_roots(settings: Settings) -> tuple[Path, ...]:
    """The directories that jobs may read, as written by the last `trainyard up` on this data directory."""
    path = _roots_file(settings)
    return tuple(Path(root) for root in path.read_text().split(":") if root) if path.exists() else ()


def _roots_file(settings: Settings) -> Path:
    return settings.data.dir / "run" / "storage-roots"


def write_sandbox(settings: Settings, *, without: bool) -> None:
    """Record for the doctor whether `trainyard up` runs jobs without a sandbox."""
    path = _no_sandbox_file(settings)
    if without:
        path.touch()
    else:
        path.unlink(missing_ok=True)


def is_without_sandbox(settings: Settings) -> bool:
    """Whether the last `trainyard up` on this data directory ran jobs without a sandbox."""
    return _no_sandbox_file(settings).exists()


def _no_sandbox_file(settings: Settings) -> Path:
    return settings.data.dir / "run" / "no-sandbox"


def keep_secret(path: Path, fresh: str) -> str:
    """The secret in the file, created with ``fresh`` if missing. The first of concurrent writers wins."""
    temporary = _written(path, fresh)
    try:
        with contextlib.suppress(FileExistsError):
            path.hardlink_to(temporary)
    finally:
        temporary.unlink()
    return path.read_text().strip()


def replace_secret(path: Path, value: str) -> None:
    """Atomically replace a file with one that only its owner can read."""
    _written(path, value).rename(path)


def _written(path: Path, value: str) -> Path:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(value + "\n")
        file.flush()
        os.fsync(descriptor)
    return temporary
