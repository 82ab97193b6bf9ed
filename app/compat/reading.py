"""Whether jobs may read a directory of the nodes, by the rules of this installation."""

from app.domain.errors import BadSpec
from app.domain.spec.locations.paths import check_path
from app.http.context import plane


def may_read(directory: str) -> bool:
    try:
        check_path(directory, plane().reading, field="")
    except BadSpec:
        return False
    return True
