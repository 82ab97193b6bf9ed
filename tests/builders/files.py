"""Files and parts of uploads as clients send them, and the control plane that takes them."""

from pathlib import Path
from typing import Any

from cryptography.fernet import Fernet

from app.database.engine import Database
from app.models import File, UploadPart
from app.security.permissions import Caller, Role
from app.services.files import creation, uploads
from app.services.files.creation import NewFile
from app.services.operations.control_plane import control_plane
from app.services.requests.control_plane import ControlPlane
from app.services.requests.idempotency import OnWritten, not_stored
from config.settings import load_settings
from tests.doubles.fakes import FakeDispatcher

USER = Caller(key_id="key-user", role=Role.USER, project="default")
RECORDS = b'{"prompt": "a", "completion": "b"}\n' * 3


def make_plane(db: Database, folder: Path, **settings: str) -> ControlPlane:
    """A control plane whose storage is below the folder."""
    environment = {
        "TRAINYARD_DATA_DIR": str(folder / "data"),
        "TRAINYARD_SECURITY_SECRET_KEY": Fernet.generate_key().decode(),
        **settings,
    }
    return control_plane(load_settings(environment), db, FakeDispatcher())


def put_file(
    plane: ControlPlane,
    content: bytes = RECORDS,
    *,
    caller: Caller = USER,
    project: str = "default",
    max_bytes: int = 1 << 20,
    on_written: OnWritten = not_stored,
    **new: Any,
) -> File:
    """Store a file in two pieces, as a request does."""
    made: list[File] = []

    def keep(session: Any, file: File) -> None:
        on_written(session, file)
        made.append(file)

    values = {"filename": "train.jsonl", "purpose": "fine-tune", **new}
    with creation.receive(plane, caller, project, max_bytes=max_bytes) as incoming:
        incoming.write(content[:10])
        incoming.write(content[10:])
        stored = incoming.finish()
        creation.create(plane, caller, NewFile(**values), stored, project=project, on_written=keep)
    return made[0]


def put_part(plane: ControlPlane, upload_id: str, content: bytes, *, caller: Caller = USER) -> UploadPart:
    made: list[UploadPart] = []
    with uploads.receive_part(plane, caller, upload_id) as incoming:
        incoming.write(content)
        stored = incoming.finish()
        uploads.add_part(plane, caller, upload_id, stored, on_written=lambda _session, part: made.append(part))
    return made[0]
