"""Files with samples of requests and answers, in the project of the service that answered."""

from app.domain.files import purposes
from app.security.permissions import Caller, Role
from app.services.files import creation
from app.services.files.creation import NewFile
from app.services.requests.control_plane import ControlPlane

GATEWAY = Caller(key_id="gateway", role=Role.SUPER_ADMIN, project=None)


def store(plane: ControlPlane, project: str, filename: str, content: bytes) -> None:
    """Write a file, which is deleted after 30 days. Raises NotFound without the project, StorageQuotaExceeded."""
    new = NewFile(filename=filename, purpose=purposes.USER_DATA, expires_seconds=purposes.LONGEST_EXPIRY_SECONDS)
    with creation.receive(plane, GATEWAY, project, max_bytes=len(content)) as incoming:
        incoming.write(content)
        creation.create(plane, GATEWAY, new, incoming.finish(), project=project)
