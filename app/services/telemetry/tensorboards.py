"""Address of a job's TensorBoard, and its access token."""

from typing import NamedTuple

from app.domain.ids import JOB_ID
from app.security import signed_tokens
from config.settings import Settings

LIFETIME_SECONDS = 24 * 3600
_PURPOSE = "tensorboard"
_SEPARATOR = "/"


class ShownJob(NamedTuple):
    """``name`` is empty in tokens of earlier versions."""

    job_id: str
    name: str


def address_of(settings: Settings, job_id: str, name: str) -> tuple[str, str] | None:
    """(URL, token) for callers that may read the job; None where no TensorBoard is served.

    The token has the job's name, because the server of TensorBoards does not read the database.
    """
    if not settings.tensorboard.url:
        return None
    url = f"{settings.tensorboard.url.rstrip('/')}/{job_id}/"
    subject = f"{job_id}{_SEPARATOR}{name}"
    return url, signed_tokens.issue(settings.security.secret_key, _PURPOSE, subject, seconds=LIFETIME_SECONDS)


def job_of(settings: Settings, token: str) -> ShownJob:
    """The job whose TensorBoard the token grants access to. Raises CredentialsInvalid."""
    job_id, _, name = signed_tokens.subject_of(settings.security.secret_key, _PURPOSE, token).partition(_SEPARATOR)
    return ShownJob(job_id, name)


def is_job(name: str) -> bool:
    return JOB_ID.fullmatch(name) is not None
