"""Checks of the database: reachability, schema revision, permissions, configuration and file system."""

import os
from pathlib import Path

from sqlalchemy import make_url, text

from app.migrations.versioning import HEAD, revision_of
from app.models.base import database_now, utc_now
from app.services.operations.diagnosis.findings import Findings, failed, fine, skipped, warning
from app.services.operations.diagnosis.site import Site

# WAL requires shared memory, which these do not support.
NETWORK_FILE_SYSTEMS = ("nfs", "cifs", "smb", "9p", "fuse.sshfs", "glusterfs", "ceph", "lustre", "beegfs")
MAX_CONNECTIONS_RATIO = 0.8
CLOCK_SECONDS = 2.0
_MOUNTS = Path("/proc/self/mounts")


def reachable(site: Site) -> Findings:
    path = sqlite_file(site)
    if path is not None and not path.exists():
        return failed(
            f"there is no database {path}",
            "run `trainyard db init`, or set another TRAINYARD_DATA_DIR or _DATABASE_URL",
        )
    with site.db.engine.connect() as connection:
        connection.execute(text("SELECT 1"))
    where = site.db.engine.url.render_as_string(hide_password=True)
    return fine(f"{where} answers")


def schema(site: Site) -> Findings:
    with site.db.engine.connect() as connection:
        revision = revision_of(connection)
    if revision is None:
        return failed("the database has no tables", "run `trainyard db init`")
    if revision > HEAD:
        return failed(
            f"the database is at revision {revision}, newer than this program ({HEAD})",
            "install the newer release here",
        )
    if revision != HEAD:
        return failed(
            f"migrations are pending: the database is at {revision}, {HEAD} is required",
            "make a backup, then run `trainyard db upgrade`",
        )
    return fine(f"the schema is at revision {revision}")


def rights(site: Site) -> Findings:
    if site.db.engine.dialect.name == "sqlite":
        return _sqlite_rights(site)
    with site.db.engine.connect() as connection:
        row = connection.execute(
            text(
                # One privilege per call: a list would require any of them, not all.
                "SELECT has_table_privilege('job', 'INSERT') AND has_table_privilege('job', 'UPDATE') "
                "AND has_table_privilege('job', 'DELETE') AS writes, "
                "has_schema_privilege(current_schema(), 'CREATE') AS migrates, rolsuper AS is_super "
                "FROM pg_roles WHERE rolname = current_user"
            )
        ).one()
    if not row.writes:
        return failed("this user may not write the tables", "connect as their owner, or GRANT the privileges")
    if not row.migrates:
        return warning("this user may not change the schema", "run `trainyard db upgrade` as the owner of the tables")
    if row.is_super:
        return warning(
            "this user is a superuser of PostgreSQL", "create a user that owns the database and nothing else"
        )
    return fine("this user may read, write and migrate")


def configuration(site: Site) -> Findings:
    """The configuration of the server or the file."""
    if site.db.engine.dialect.name == "sqlite":
        return _sqlite_configuration(site)
    with site.db.engine.connect() as connection:
        most = int(str(connection.execute(text("SHOW max_connections")).scalar_one()))
        used = int(str(connection.execute(text("SELECT count(*) FROM pg_stat_activity")).scalar_one()))
        durable = connection.execute(text("SELECT current_setting('fsync') = 'on'")).scalar_one()
    findings: Findings = []
    if not durable:
        findings += warning("fsync is off: a power cut may destroy the database", "set fsync = on in postgresql.conf")
    if used > most * MAX_CONNECTIONS_RATIO:
        findings += warning(
            f"{used} of {most} connections are in use",
            "raise max_connections, or put a pooler in session mode before it",
        )
    return findings or fine(f"{used} of {most} connections are in use")


def clock(site: Site) -> Findings:
    if site.db.engine.dialect.name == "sqlite":
        return skipped("SQLite has the clock of this machine")
    with site.db.read() as session:
        skew = (database_now(session) - utc_now()).total_seconds()
    if abs(skew) > CLOCK_SECONDS:
        return warning(f"the database's clock differs from this one by {skew:+.1f} s", "run NTP on both machines")
    return fine("the database's clock agrees with this one")


def sqlite_file(site: Site) -> Path | None:
    """The database file; None for PostgreSQL."""
    url = make_url(site.settings.database.url)
    return Path(url.database) if url.get_backend_name() == "sqlite" and url.database else None


def _sqlite_rights(site: Site) -> Findings:
    path = sqlite_file(site)
    if path is not None and not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        return failed(
            f"{path} or its directory can't be written by this user", f"chown it: `chown -R $USER {path.parent}`"
        )
    with site.db.write():  # takes the write lock, or fails as other writers would
        pass
    return fine("the database can be written")


def _sqlite_configuration(site: Site) -> Findings:
    with site.db.engine.connect() as connection:
        mode = str(connection.execute(text("PRAGMA journal_mode")).scalar_one())
    path = sqlite_file(site)
    kind = _file_system(path) if path is not None else ""
    if kind.startswith(NETWORK_FILE_SYSTEMS):
        return failed(f"{path} is on {kind}, where SQLite loses data", "use a local disk, or PostgreSQL")
    if mode != "wal":
        return failed(f"the journal mode is {mode} instead of wal", "move the database to a disk that allows WAL")
    return fine("the journal is a write-ahead log on a local disk")


def _file_system(path: Path) -> str:
    """The type of the file system that contains the path."""
    kinds = {}
    for line in _MOUNTS.read_text(errors="replace").splitlines():
        _, mounted, kind, *_ = line.split(" ")
        kinds[Path(mounted.replace("\\040", " "))] = kind
    resolved = path.resolve()
    return next((kinds[folder] for folder in (resolved, *resolved.parents) if folder in kinds), "")
