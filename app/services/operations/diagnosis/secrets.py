"""Checks of keys and secrets: that they are there, fit what was sealed with them, and are nobody else's to read."""

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
    "admin.key", "secret.key", "flower.password", "broker.url", "database.url", "redis/redis.conf", "trainyard.db",
    "trainyard.db-wal",
)  # fmt: skip
# Where the units of deploy/systemd look for settings; its group may read it, nobody else.
ENVIRONMENT_FILE = Path("/etc/trainyard/trainyard.env")


def secret_key(site: Site) -> Findings:
    if not site.settings.security.secret_key:
        return failed(
            "there is no secret key",
            "run `trainyard db init`, or set TRAINYARD_SECURITY_SECRET_KEY to the key that the other processes have",
        )
    try:
        SecretBox(site.settings.security.secret_key)
    except SecretKeyMissing as error:
        return failed(error.message, "take the key from another process, or from your backup of it")
    return fine("the secret key has the right form")


def sealed_rows(site: Site) -> Findings:
    """The newest of each kind: a wrong key fails on all of them."""
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
            f"{closed} of {opened + closed} stored secrets were sealed with another key than this one",
            "give all processes the same TRAINYARD_SECURITY_SECRET_KEY (or DIR/secret.key): the one from when the "
            "database was made",
        )
    return fine(f"{opened} stored secrets open with the secret key") if opened else skipped("nothing is sealed yet")


def files_of_secrets(site: Site) -> Findings:
    directory = site.settings.data.dir
    if not directory.is_dir():
        return skipped(f"there is no data directory {directory} here")
    findings: Findings = []
    if _mode(directory) & 0o077:
        # Nobody gets at what lies in a closed directory, whatever the files say.
        readable = [name for name in SECRET_FILES if _mode(directory / name) & 0o077]
        if readable:
            findings += failed(
                f"others on this machine may read {', '.join(readable)} in {directory}", f"chmod -R go= {directory}"
            )
        else:
            findings += warning(f"others may look into {directory}", f"chmod go= {directory}")
    if _mode(ENVIRONMENT_FILE) & 0o007:
        findings += failed(f"everybody may read {ENVIRONMENT_FILE}", f"chmod o= {ENVIRONMENT_FILE}")
    return findings or fine("nobody else may read the files with secrets")


def _mode(path: Path) -> int:
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except OSError:  # not there, or not ours to see: then it is nobody's secret here
        return 0
