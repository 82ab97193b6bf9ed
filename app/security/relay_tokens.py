"""Tokens by which a relay knows the platform's own clients: of one attempt, and of one fencing token of its job."""

from app.security.derived_tokens import derived_token


def relay_token(secret_key: str, *, job_id: str, attempt: int, fence: int) -> str:
    """What a client of this attempt's relay must send."""
    return derived_token(secret_key, "relay-token-1", job_id, attempt, fence)


def interactive_token(secret_key: str, *, job_id: str, attempt: int, fence: int, part: int) -> str:
    """What a client must send to the relay of a part's session server."""
    return derived_token(secret_key, "interactive-relay-token-1", job_id, attempt, fence, part)


def notebook_token(secret_key: str, *, job_id: str, attempt: int) -> str:
    """What a client must send to the notebook server of an attempt; gateways do."""
    return derived_token(secret_key, "notebook-token-1", job_id, attempt)
