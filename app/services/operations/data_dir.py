"""What lies in the data directory before anything runs: folders and secrets. Standard library only, so that
`trainyard up` can start its processes before it imports anything slow.
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
    """Make what is missing and return the settings with the secrets filled in.

    Several processes may do it at once: all of them end up with the same secrets.
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
    """Where a running `trainyard up` writes the URL of its API."""
    return settings.data.dir / "run" / "url"


def write_roots(settings: Settings) -> None:
    """Tell processes that are started alone from which directories jobs may read here."""
    _roots_file(settings).write_text(":".join(map(str, settings.storage.roots)))


def read_roots(settings: Settings) -> tuple[Path, ...]:
    """What the last `trainyard up` on this data directory let jobs read."""
    path = _roots_file(settings)
    return tuple(Path(root) for root in path.read_text().split(":") if root) if path.exists() else ()


def _roots_file(settings: Settings) -> Path:
    return settings.data.dir / "run" / "storage-roots"


def write_sandbox(settings: Settings, *, without: bool) -> None:
    """Note for the doctor whether this start of `trainyard up` was told to run jobs without a sandbox."""
    path = _no_sandbox_file(settings)
    if without:
        path.touch()
    else:
        path.unlink(missing_ok=True)


def is_without_sandbox(settings: Settings) -> bool:
    """Whether the last `trainyard up` on this data directory was."""
    return _no_sandbox_file(settings).exists()


def _no_sandbox_file(settings: Settings) -> Path:
    return settings.data.dir / "run" / "no-sandbox"


def keep_secret(path: Path, fresh: str) -> str:
    """The secret in the file; ``fresh`` if there was none. The first to create the file wins."""
    temporary = _written(path, fresh)
    try:
        with contextlib.suppress(FileExistsError):
            path.hardlink_to(temporary)
    finally:
        temporary.unlink()
    return path.read_text().strip()


def replace_secret(path: Path, value: str) -> None:
    """Write a file that only its owner can read, in place of whatever was there."""
    _written(path, value).rename(path)


def _written(path: Path, value: str) -> Path:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(value + "\n")
        file.flush()
        os.fsync(descriptor)
    return temporary
