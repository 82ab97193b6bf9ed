"""What a job of this node may ask, and with which token; refuses jobs that ask models where no gateway is known."""

from app.domain.spec.asked_models import asked_models
from app.security.job_tokens import JobToken, job_token
from app.services.attempts.work_orders import WorkOrder
from config.settings import Settings
from workers.attempt_failed import AttemptFailed
from workers.supervisor.model_requests.forwarding import Gateway, ModelRequests


def model_requests(settings: Settings, work: WorkOrder) -> ModelRequests:
    def connect() -> Gateway:
        # Late: http.client is large, and few jobs ask models.
        from workers.supervisor.model_requests.gateway_client import GatewayClient  # noqa: PLC0415

        token = JobToken(job_id=work.job_id, attempt=work.attempt, fence=work.fence)
        return GatewayClient(
            settings.gateway.url,
            job_token(settings.security.secret_key, token),
            silence_seconds=settings.gateway.silence_seconds,
        )

    return ModelRequests(asked_models(work.document), connect)


def refuse_without_gateway(settings: Settings, work: WorkOrder) -> None:
    """Raises AttemptFailed; another node may have one."""
    names = sorted(asked_models(work.document))
    if names and not settings.gateway.url:
        raise AttemptFailed(
            "INTERNAL",
            f"the job asks {', '.join(names)}, and the node {work.node} does not know a gateway: set "
            "TRAINYARD_GATEWAY_URL where its worker is started",
        )
