"""Where the relay of an attempt's session server listens, who is let in, and the settings of its notebook server."""

from app.domain.port_addresses import PortsHost
from app.domain.spec.interactive import NOTEBOOK_PORT
from app.security.relay_tokens import interactive_token, notebook_token
from app.services.attempts import interactive_endpoints
from app.services.attempts.work_orders import WorkOrder
from config.settings import Settings
from trainyard.protocol.interactive import SOCKET
from workers.run_dir.layout import RunDirectory
from workers.supervisor.rendezvous.meeting import own_address
from workers.supervisor.serving.relay_process import RelayPlace

_ANY_HOST = "http://jobs.localhost"  # of a node that does not know the gateway's: the path is the same at each


def session_place(settings: Settings, work: WorkOrder, run: RunDirectory) -> RelayPlace:
    """Raises AttemptFailed when the node's address can't be determined."""
    token = interactive_token(
        settings.security.secret_key, job_id=work.job_id, attempt=work.attempt, fence=work.fence, part=work.part
    )
    local = interactive_endpoints.local_socket(settings.data.dir.resolve(), work.job_id, work.attempt, work.part)
    return RelayPlace(address=own_address(settings), socket=run.path / SOCKET, token=token, local=local)


def probed_part(work: WorkOrder) -> int:
    """The part of whose sandbox the readiness probe asks a port: that of the port's instance, or the first."""
    port = work.document.interactive_config.probed
    if port is None or port.role is None:
        return 0
    return next((each.part for each in work.all_instances if (each.role, each.index) == (port.role, port.index)), 0)


def notebook_settings(settings: Settings, work: WorkOrder) -> dict[str, str] | None:
    """What the session server starts JupyterLab with, on the first node alone; None: the job has none."""
    if not work.document.interactive_config.notebook or work.part > 0:
        return None
    address = PortsHost(settings.gateway.ports_url or _ANY_HOST).address(work.job_id, NOTEBOOK_PORT)
    token = notebook_token(settings.security.secret_key, job_id=work.job_id, attempt=work.attempt)
    return {"token": token, "base_url": f"{address.prefix}/"}
