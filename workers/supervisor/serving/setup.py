"""Where the relay of an attempt listens, where its engine does, and who is let in."""

from app.security.relay_tokens import relay_token
from app.services.attempts.work_orders import WorkOrder
from config.settings import Settings
from workers.run_dir.layout import RunDirectory
from workers.supervisor.rendezvous.meeting import own_address
from workers.supervisor.serving.relay_process import RelayPlace

ENGINE_SOCKET = "engine.sock"  # in the run directory


def relay_place(settings: Settings, work: WorkOrder, run: RunDirectory) -> RelayPlace:
    """Raises AttemptFailed when the node's address can't be determined."""
    token = relay_token(settings.security.secret_key, job_id=work.job_id, attempt=work.attempt, fence=work.fence)
    return RelayPlace(address=own_address(settings), socket=run.path / ENGINE_SOCKET, token=token)
