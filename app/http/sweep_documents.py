"""The schema of job documents, applied to the documents of a sweep's trials."""

from typing import Any

from app.domain.spec.model import JobDocument
from app.http.errors import BadShape
from app.http.request_body import validated
from app.schemas.jobs import SubmitJobSchema
from app.schemas.spec.field_verdicts import refuse
from app.schemas.spec.job_fields import FIELDS

_DOCUMENT = SubmitJobSchema()


def complete(document: dict[str, Any]) -> JobDocument:
    """The typed document of a trial. Raises BadShape with fields of the sweep's `job`, and BadSpec."""
    try:
        found: JobDocument = validated(_DOCUMENT, document)
    except BadShape as error:
        raise BadShape([(f"job.{field}" if field else "job", message) for field, message in error.details]) from error
    refuse(found, FIELDS)
    return found
