"""Tokens by which a relay knows the platform's own clients: of one attempt, and of one fencing token of its job.

They are stored nowhere: who has the installation's secret computes them.
"""

import hashlib
import hmac


def relay_token(secret_key: str, *, job_id: str, attempt: int, fence: int) -> str:
    """What a client of this attempt's relay must send."""
    key = hashlib.sha256(f"relay-token-1:{secret_key}".encode()).digest()
    return hmac.digest(key, f"{job_id}/{attempt}/{fence}".encode(), "sha256").hex()


def interactive_token(secret_key: str, *, job_id: str, attempt: int, fence: int, part: int) -> str:
    """What a client must send to the relay of a part's session server."""
    key = hashlib.sha256(f"interactive-relay-token-1:{secret_key}".encode()).digest()
    return hmac.digest(key, f"{job_id}/{attempt}/{fence}/{part}".encode(), "sha256").hex()


def notebook_token(secret_key: str, *, job_id: str, attempt: int) -> str:
    """What a client must send to the notebook server of an attempt; gateways do."""
    key = hashlib.sha256(f"notebook-token-1:{secret_key}".encode()).digest()
    return hmac.digest(key, f"{job_id}/{attempt}".encode(), "sha256").hex()
