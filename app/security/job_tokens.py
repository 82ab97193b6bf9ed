"""Tokens by which a job asks models in its project: of one attempt, and of one fencing token of its job.

A job's own processes never see one.
"""

import hmac
import re
from dataclasses import dataclass

from app.security.derived_tokens import derived_token

PREFIX = "tyjob."
_FORM = re.compile(r"tyjob\.(job-[0-9a-f-]{36})\.([0-9]{1,9})\.([0-9]{1,9})\.([0-9a-f]{64})", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class JobToken:
    """Whose it is; whether the attempt still has a lease is for the database to say."""

    job_id: str
    attempt: int
    fence: int


def job_token(secret_key: str, of: JobToken) -> str:
    return f"{PREFIX}{of.job_id}.{of.attempt}.{of.fence}.{_digest(secret_key, of)}"


def read_job_token(secret_key: str, text: str) -> JobToken | None:
    """None for what this installation has not made."""
    match = _FORM.fullmatch(text) if len(text) < 200 else None
    if match is None:
        return None
    found = JobToken(job_id=match[1], attempt=int(match[2]), fence=int(match[3]))
    return found if hmac.compare_digest(_digest(secret_key, found), match[4]) else None


def _digest(secret_key: str, of: JobToken) -> str:
    return derived_token(secret_key, "job-token-1", of.job_id, of.attempt, of.fence)
