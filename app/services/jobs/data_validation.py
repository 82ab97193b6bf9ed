"""Data validation: whether model and data can be trained on, by the rules of submission and by an inspection."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from app.domain.errors import InvalidRequest, NotSupportedYet, Unavailable
from app.domain.spec.job_spec import JobSpec, from_document
from app.domain.spec.model import JobDocument
from app.security.permissions import Caller
from app.services.access import projects
from app.services.jobs import submission, uploaded_data
from app.services.jobs.dry_run import DryRunPlan
from app.services.preflight import admission, inference_inputs, inspections
from app.services.preflight.admission import InspectionSettings
from app.services.preflight.inspections import InspectionRequest, Report
from app.services.requests.control_plane import ControlPlane
from app.services.requests.idempotency import OnWritten, not_stored

POLL_SECONDS = 0.1


@dataclass(frozen=True, kw_only=True)
class ValidationLimits:
    """Timeout for the answer in seconds, and the inspection settings; ``inspection`` None: inspections are disabled."""

    inspection: InspectionSettings | None
    seconds: float = 55.0


def validate(
    plane: ControlPlane,
    caller: Caller,
    document: JobDocument,
    patience: ValidationLimits,
    *,
    project: str | None = None,
    forwarded: Mapping[str, str] = MappingProxyType({}),
    on_written: OnWritten = not_stored,
) -> Report:
    """Validate ``document``, a whole job document; a coordinator inspects, the caller waits.

    Raises NotSupportedYet where inspections are disabled, and Unavailable on a timeout: the same request later finds
    the answer.
    """
    project = project or caller.home_project
    try:
        spec = _checked(plane, caller, document, project, forwarded)
    except InvalidRequest as error:
        refused = {"field": error.field or "", "error_type": "INVALID_CONFIG", "message": error.message}
        return _answer(plane, {"errors": [refused]}, on_written)
    return _inspected(plane, caller, spec, project, patience, on_written)


def inspect_planned(plane: ControlPlane, caller: Caller, plan: DryRunPlan, patience: ValidationLimits) -> Report:
    """What a coordinator finds in the records of an inference job or evaluation whose dry run gave this plan.

    Raises as `validate`.
    """
    spec = plan.checked.spec
    if reason := inference_inputs.why_not_read(spec.document):
        return unread(reason)
    return _inspected(plane, caller, spec, plan.checked.project, patience, not_stored)


def unread(reason: str) -> Report:
    """The report on data that is not inspected."""
    return {"valid": True, "errors": [], "warnings": [], "left_out": [reason], "sources": []}


def _inspected(
    plane: ControlPlane, caller: Caller, spec: JobSpec, project: str, patience: ValidationLimits, on_written: OnWritten
) -> Report:
    if patience.inspection is None:
        raise NotSupportedYet(
            "data is not inspected on this installation: TRAINYARD_PREFLIGHT_ENABLED is off; submit the job, whose "
            "node checks the same"
        )
    asked = _question(plane, caller, spec, project, patience.inspection)
    with plane.db.read() as session:
        known = inspections.remembered(session, asked.fingerprint)
    if known is not None:
        return _answer(plane, known, on_written)
    inspection_id = inspections.request(plane.db, asked)
    return _answer(plane, _wait(plane, inspection_id, patience.seconds), on_written, delivered_id=inspection_id)


def _checked(
    plane: ControlPlane, caller: Caller, document: JobDocument, project: str, forwarded: Mapping[str, str]
) -> JobSpec:
    spec = from_document(document, plane.reading.of(project), forwarded)
    with plane.db.read() as session:
        projects.visible(session, caller, project)
        submission.refuse_foreign_results(session, plane.reading, project, spec)
        uploaded_data.refuse_unusable_files(session, project, spec.document)
    return spec


def _question(
    plane: ControlPlane, caller: Caller, spec: JobSpec, project: str, inspection: InspectionSettings
) -> InspectionRequest:
    document, secrets = spec.document, dict(spec.secrets)
    asked = json.dumps([project, caller.key_id, document.to_json(), secrets], sort_keys=True)
    return InspectionRequest(
        project=project,
        document=document,
        sealed_secrets=plane.box.seal(secrets) if secrets else "",
        request_hash=plane.box.fingerprint(asked),
        fingerprint=admission.fingerprint_of(project, document, plane.reading, inspection),
    )


def _wait(plane: ControlPlane, inspection_id: str, seconds: float) -> Report:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        report = inspections.answer(plane.db, inspection_id)
        if report is not None:
            return report
        time.sleep(POLL_SECONDS)
    raise Unavailable(f"no coordinator has inspected the data within {seconds:g} s; repeat the request for the answer")


def _answer(plane: ControlPlane, report: Report, on_written: OnWritten, *, delivered_id: str = "") -> Report:
    found = {"valid": not report.get("errors"), "errors": [], "warnings": [], "left_out": [], "sources": [], **report}
    with plane.db.write() as session:
        if delivered_id:
            inspections.mark_delivered(session, delivered_id)
        on_written(session, found)
    return found
