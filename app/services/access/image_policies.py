"""Which images jobs of a project may use, of those that the installation allows."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.domain.administration import REQUIRED_DIGESTS
from app.domain.errors import BadSpec
from app.domain.spec.document import images
from app.domain.spec.locations.images import parse, why_not_of_project
from app.domain.spec.model import JobDocument
from app.models import Project


def refuse_foreign_images(session: Session, project: str, document: JobDocument) -> None:
    """Raises BadSpec for an image of the job or of one of its roles that the project's list does not have."""
    named = list(images(document))
    if not named:
        return
    rules = select(Project.image_sources, Project.image_digests).where(Project.name == project)
    for sources, digests in session.execute(rules):
        for image, field in named:
            require_digest = digests == REQUIRED_DIGESTS
            if why := why_not_of_project(parse(image.reference), sources, project, require_digest=require_digest):
                raise BadSpec(why, field=field)
