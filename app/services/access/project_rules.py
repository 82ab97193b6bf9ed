"""What a project does not let the documents of its jobs ask for."""

from sqlalchemy.orm import Session

from app.domain.spec.model import JobDocument
from app.services.access import egress, image_policies, volume_claims


def refuse_beyond_project(session: Session, project: str, document: JobDocument) -> None:
    """Raises BadSpec for the first of it."""
    egress.refuse_without_services(session, project, document)
    volume_claims.refuse_new_claims(session, project, document)
    image_policies.refuse_foreign_images(session, project, document)
