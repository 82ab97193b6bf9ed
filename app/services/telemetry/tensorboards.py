"""Address of a job's TensorBoard, and its access token."""

from app.domain.ids import JOB_ID
from app.security import signed_tokens
from config.settings import Settings

LIFETIME_SECONDS = 24 * 3600
_PURPOSE = "tensorboard"


def address_of(settings: Settings, job_id: str) -> tuple[str, str] | None:
    """(URL, token) for callers that may read the job; None where no TensorBoard is served."""
    if not settings.tensorboard.url:
        return None
    url = f"{settings.tensorboard.url.rstrip('/')}/{job_id}/"
    return url, signed_tokens.issue(settings.security.secret_key, _PURPOSE, job_id, seconds=LIFETIME_SECONDS)


def job_of(settings: Settings, token: str) -> str:
    """The job whose TensorBoard the token grants access to. Raises CredentialsInvalid."""
    return signed_tokens.subject_of(settings.security.secret_key, _PURPOSE, token)


def is_job(name: str) -> bool:
    return JOB_ID.fullmatch(name) is not None
