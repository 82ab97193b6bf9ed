"""What an inspection finds in the data of a document that is not submitted: for dry runs and validations of data."""

from app.domain.errors import NotSupportedYet, Unavailable
from app.http.context import backend, caller, holder, plane
from app.services.jobs import data_validation
from app.services.jobs.data_validation import ValidationLimits
from app.services.jobs.dry_run import DryRunPlan
from app.services.preflight.admission import InspectionSettings
from app.services.preflight.inspections import Report


def validation_limits() -> ValidationLimits:
    preflight = backend().settings.preflight
    inspection = InspectionSettings(rows=preflight.rows, waiting=preflight.waiting) if preflight.enabled else None
    return ValidationLimits(inspection=inspection)


def data_of_plan(plan: DryRunPlan) -> Report:
    """The report on the records that a planned inference job reads; where none can be made here, it says why.

    Raises LimitExceeded: it waits for a coordinator, and blocks a thread of the server as an open stream does.
    """
    with backend().streams.held(holder()):
        try:
            return data_validation.inspect_planned(plane(), caller(), plan, validation_limits())
        except (NotSupportedYet, Unavailable) as error:
            return data_validation.unread(error.message)
