"""Cancelling and deleting evaluations."""

from app.security.permissions import Caller
from app.services.evaluations import listing
from app.services.evaluations.listing import EvaluationDetails
from app.services.jobs import deletion, details
from app.services.jobs.control import requests as control_requests
from app.services.requests.control_plane import ControlPlane
from app.services.requests.idempotency import OnWritten, not_stored


def cancel(
    plane: ControlPlane, caller: Caller, evaluation_id: str, *, reason: str = "", on_written: OnWritten = not_stored
) -> None:
    """Cancel at once, or request it. Raises IllegalTransition when it has ended."""
    with plane.db.write() as session:
        listing.find(session, caller, evaluation_id)
        job = control_requests.request_cancel(session, evaluation_id, actor=caller.actor, reason=reason)
        on_written(session, EvaluationDetails(details=details.changed(session, job)))
    if job.requested == "cancel":
        plane.nudge(job)


def delete(plane: ControlPlane, caller: Caller, evaluation_id: str) -> None:
    """Delete an ended evaluation with its files. Raises IllegalTransition until it has ended."""
    with plane.db.read() as session:
        listing.find(session, caller, evaluation_id)
    deletion.remove(plane, caller, evaluation_id, artifacts=True)
