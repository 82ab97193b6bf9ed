"""Initializes a deployment: schema, default project and queue, the admin key. Idempotent."""

import fcntl
import importlib

from sqlalchemy.exc import IntegrityError

from app.database.engine import Database
from app.database.from_settings import open_database
from app.domain.errors import CredentialsInvalid
from app.domain.names import DEFAULT_PROJECT
from app.migrations import versioning
from app.models import Project, Queue
from app.models.base import Base
from app.models.queue import DEFAULT_QUEUE
from app.security.permissions import Role
from app.security.secrets import SecretBox
from app.services.access import api_keys
from app.services.operations.data_dir import prepare_directory, replace_secret
from config.settings import Settings

ADMIN_KEY_NAME = "made at start"


def prepare(settings: Settings) -> Settings:
    """Create everything that the first process requires; returns the settings with the generated secrets.

    Safe to call concurrently from several processes.
    """
    settings = prepare_directory(settings)
    db = open_database(settings.database)
    try:
        prepare_database(db)
        ensure_admin_key(db, settings)
    finally:
        db.close()
    return settings


def prepare_database(db: Database) -> None:
    """Migrate the schema and create the default project and queue."""
    if not versioning.is_current(db.engine):
        # Imported lazily: Alembic is slow to import, and an ordinary start has nothing to migrate.
        importlib.import_module("app.migrations.runner").upgrade(db.engine)
    for row in (Project(name=DEFAULT_PROJECT), Queue(name=DEFAULT_QUEUE)):
        _add_if_missing(db, row, row.name)


def ensure_admin_key(db: Database, settings: Settings) -> None:
    """Ensure that the key file holds a valid super admin key; create one otherwise."""
    path = settings.admin_key_file
    with (settings.data.dir / "run" / "admin-key.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two processes would create two keys, one of them in no file
        if path.exists() and _is_super_admins(db, path.read_text().strip()):
            return
        box = SecretBox(settings.security.secret_key)
        replace_secret(path, api_keys.create(db, box, role=Role.SUPER_ADMIN, project=None, name=ADMIN_KEY_NAME).key)


def _add_if_missing(db: Database, row: Base, name: str) -> None:
    with db.read() as session:
        if session.get(type(row), name) is not None:
            return
    try:
        with db.write() as session:
            session.add(row)
    except IntegrityError:
        return  # another process inserted it concurrently


def _is_super_admins(db: Database, key: str) -> bool:
    try:
        return api_keys.authenticate(db, key).role is Role.SUPER_ADMIN
    except CredentialsInvalid:
        return False
