"""Tokens by which a job asks models in its project: of one attempt, and of one fencing token of its job.

They are stored nowhere: who has the installation's secret computes them, and a job's own processes never see one.
"""

import hashlib
import hmac
import re
from dataclasses import dataclass

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
    key = hashlib.sha256(f"job-token-1:{secret_key}".encode()).digest()
    return hmac.digest(key, f"{of.job_id}/{of.attempt}/{of.fence}".encode(), "sha256").hex()
