"""Reading the content of a file."""

from typing import BinaryIO

from app.models import File
from app.services.requests.control_plane import ControlPlane
from app.storage.object_keys import user_file_key


def opened(plane: ControlPlane, file: File, offset: int = 0) -> BinaryIO:
    """The content from ``offset`` on; the caller closes it. Raises NotFound for one that was deleted meanwhile."""
    return plane.storage.open(user_file_key(file.project, file.id), offset)
