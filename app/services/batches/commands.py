"""Commands for a batch that exists. A coordinator carries them out."""

from app.domain.batches.states import ENDED, BatchState
from app.domain.errors import IllegalTransition
from app.models import Batch
from app.security.permissions import Caller
from app.services.batches import listing, rows
from app.services.lifecycle import audit
from app.services.requests.control_plane import ControlPlane
from app.services.requests.idempotency import OnWritten, not_stored


def cancel(plane: ControlPlane, caller: Caller, batch_id: str, *, on_written: OnWritten = not_stored) -> Batch:
    """Cancel its jobs, and keep what is answered; idempotent. ``on_written`` is given the Batch.

    Raises NotFound as `listing.find`, and IllegalTransition when it has ended or its files are being written.
    """
    with plane.db.write() as session:
        batch = rows.locked(session, listing.find(session, caller, batch_id).id)
        if batch.status in (*ENDED, BatchState.FINALIZING):
            raise IllegalTransition(f"the batch {batch.id} is {batch.status} and cannot be cancelled")
        if batch.status != BatchState.CANCELLING:
            rows.move(session, batch, BatchState.CANCELLING)
            batch.cancel_requested = True
            audit.record(
                session, actor=caller.actor, action="batch.cancel", project=batch.project, target=batch.id, message=""
            )
        session.flush()
        on_written(session, batch)
    return batch
