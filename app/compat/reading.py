"""What jobs may use, by the rules of this installation."""

from app.domain.errors import BadSpec
from app.domain.spec.locations.paths import check_path
from app.http.context import plane


def uses_images() -> bool:
    """Whether the operator has named registries for the images of jobs."""
    return bool(plane().reading.image_sources)


def knows_groups() -> bool:
    """Whether an identity provider says in which groups people are."""
    return plane().reading.knows_groups


def may_read(directory: str) -> bool:
    """Whether jobs may read a directory of the nodes."""
    try:
        check_path(directory, plane().reading, field="")
    except BadSpec:
        return False
    return True
