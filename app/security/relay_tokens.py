"""Tokens by which a relay knows the platform's own clients: of one attempt, and of one fencing token of its job.

They are stored nowhere: who has the installation's secret computes them.
"""

import hashlib
import hmac


def relay_token(secret_key: str, *, job_id: str, attempt: int, fence: int) -> str:
    """What a client of this attempt's relay must send."""
    key = hashlib.sha256(f"relay-token-1:{secret_key}".encode()).digest()
    return hmac.digest(key, f"{job_id}/{attempt}/{fence}".encode(), "sha256").hex()
