"""The secret by which the nodes of one attempt know that a launcher is the attempt's own.

It is stored nowhere: supervisors compute it, and each passes it on to its rank agent alone.
"""

import hashlib
import hmac


def launch_secret(secret_key: str, *, job_id: str, attempt: int, fence: int) -> str:
    key = hashlib.sha256(f"launch-secret-1:{secret_key}".encode()).digest()
    return hmac.digest(key, f"{job_id}/{attempt}/{fence}".encode(), "sha256").hex()
