"""Checks of keys and secrets: existence, match with encrypted data, and file permissions."""

import stat
from pathlib import Path

from sqlalchemy import select

from app.models import ApiKey, Inspection, Job, Webhook
from app.security.secrets import SecretBox, SecretKeyMissing
from app.services.operations.diagnosis.findings import Findings, failed, fine, skipped, warning
from app.services.operations.diagnosis.site import Site

SEALED = (ApiKey.sealed_secret_key, Job.sealed_secrets, Webhook.sealed_secret, Inspection.sealed_secrets)
SAMPLE = 50
SECRET_FILES = (
    "admin.key",
    "secret.key",
    "flower.password",
    "broker.url",
    "database.url",
    "redis/redis.conf",
    "trainyard.db",
    "trainyard.db-wal",
)
# The settings file of the units in deploy/systemd, readable by its group only.
ENVIRONMENT_FILE = Path("/etc/trainyard/trainyard.env")


def secret_key(site: Site) -> Findings:
    if not site.settings.security.secret_key:
        return failed(
            "there is no secret key",
            "run `trainyard db init`, or set TRAINYARD_SECURITY_SECRET_KEY to the key of the other processes",
        )
    try:
        SecretBox(site.settings.security.secret_key)
    except SecretKeyMissing as error:
        return failed(error.message, "copy the key from another process or a backup")
    return fine("the secret key is well-formed")


def sealed_rows(site: Site) -> Findings:
    """Decrypts the newest secrets of each kind: a wrong key fails on all of them."""
    box = SecretBox(site.settings.security.secret_key)
    opened, closed = 0, 0
    with site.db.read() as session:
        for column in SEALED:
            table = column.class_
            for sealed in session.scalars(select(column).where(column != "").order_by(table.id.desc()).limit(SAMPLE)):
                try:
                    box.open(sealed)
                    opened += 1
                except SecretKeyMissing:
                    closed += 1
    if closed:
        return failed(
            f"{closed} of {opened + closed} stored secrets were encrypted with another key",
            "give all processes the same TRAINYARD_SECURITY_SECRET_KEY (or DIR/secret.key): the one with which the "
            "database was created",
        )
    return fine(f"{opened} stored secrets can be decrypted") if opened else skipped("no secrets are stored yet")


def files_of_secrets(site: Site) -> Findings:
    directory = site.settings.data.dir
    if not directory.is_dir():
        return skipped(f"there is no data directory {directory} here")
    findings: Findings = []
    if _mode(directory) & 0o077:
        # Files in a closed directory are inaccessible, whatever their own mode.
        readable = [name for name in SECRET_FILES if _mode(directory / name) & 0o077]
        if readable:
            findings += failed(
                f"other users of this machine may read {', '.join(readable)} in {directory}",
                f"chmod -R go= {directory}",
            )
        else:
            findings += warning(f"other users may list {directory}", f"chmod go= {directory}")
    if _mode(ENVIRONMENT_FILE) & 0o007:
        findings += failed(f"every user may read {ENVIRONMENT_FILE}", f"chmod o= {ENVIRONMENT_FILE}")
    return findings or fine("other users may not read the files with secrets")


def _mode(path: Path) -> int:
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except OSError:  # missing or inaccessible: nothing to protect here
        return 0
