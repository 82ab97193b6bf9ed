"""The caller that a running job is when it asks models: in its project and for its key, as long as it has its lease."""

from sqlalchemy import select

from app.database.engine import Database
from app.domain.errors import CredentialsInvalid
from app.models import ApiKey, Job, Lease
from app.security.job_tokens import read_job_token
from app.security.permissions import Caller, Role


def authenticate(db: Database, secret_key: str, text: str) -> Caller:
    """Who may ask models, and nothing else. Raises CredentialsInvalid, also once the attempt has lost its lease."""
    token = read_job_token(secret_key, text)
    if token is None:
        raise CredentialsInvalid("the token of the job is none that this installation has made")
    running = (
        select(Job.created_by, Job.project, ApiKey.requests_per_minute, ApiKey.tokens_per_minute)
        .join(Lease, Lease.job_id == Job.id)
        .outerjoin(ApiKey, ApiKey.id == Job.created_by)
        .where(
            Job.id == token.job_id,
            Job.fence == token.fence,
            Lease.attempt == token.attempt,
            Lease.fence == token.fence,
            Lease.counter > 0,
            Lease.released_at.is_(None),
        )
    )
    with db.read() as session:
        row = session.execute(running.limit(1)).one_or_none()
    if row is None:
        raise CredentialsInvalid(f"attempt {token.attempt} of {token.job_id} runs no more")
    return Caller(
        key_id=row.created_by,
        role=Role.INFERENCE,
        project=row.project,
        requests_per_minute=row.requests_per_minute,
        tokens_per_minute=row.tokens_per_minute,
    )
