"""One POST to a receiver, which may be hostile: only the status and one header of the response are used."""

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from urllib3.exceptions import HTTPError

from app.domain.webhooks import ALLOW_SETTING
from app.services.access.guarded_http import FAILURES, OutgoingRequest, exchange, problem_of

_BODY_BYTES = 65_536
_BODY_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class Posted:
    """The result of a try. ``problem`` is empty on success; ``status_code`` is None without a response.

    Of an email: ``reached`` are the recipients whom it was taken for, ``refused`` those whom the mail server will never
    take, with its answers, and ``is_final`` says that another try would end in the same problem.
    """

    status_code: int | None = None
    problem: str = ""
    retry_after_seconds: int = 0
    reached: tuple[str, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    is_final: bool = False


@dataclass(frozen=True, kw_only=True)
class PostRules:
    """``allow``: permitted private hosts and networks. The timeout covers name resolution to response."""

    allow: tuple[str, ...]
    timeout_seconds: float


def post(url: str, body: bytes, headers: Mapping[str, str], rules: PostRules) -> Posted:
    """Send the body. Never raises for failures of the receiver, its name or the network."""
    deadline = time.monotonic() + rules.timeout_seconds
    try:
        return _judge(
            *_exchange(OutgoingRequest(method="POST", url=url, headers=headers, body=body), rules.allow, deadline)
        )
    except TimeoutError:
        return Posted(problem=f"no answer within {rules.timeout_seconds:g} seconds")
    except FAILURES as error:
        return Posted(problem=problem_of(error, setting=ALLOW_SETTING))


def _exchange(request: OutgoingRequest, allow: tuple[str, ...], deadline: float) -> tuple[int, str]:
    """(status, Retry-After)."""
    with exchange(request, allow, deadline) as (response, sock):
        # Thrown away: to close on unread bytes would look like a broken connection to the receiver.
        sock.deadline = min(deadline, time.monotonic() + _BODY_SECONDS)
        with contextlib.suppress(OSError, HTTPError):
            response.read(_BODY_BYTES, decode_content=False)
        return response.status, response.headers.get("Retry-After", "")


def _judge(status: int, retry_after: str) -> Posted:
    if 200 <= status < 300:
        return Posted(status_code=status)
    moved = "; redirects are not followed" if 300 <= status < 400 else ""
    asked = int(retry_after) if retry_after.isascii() and retry_after.isdigit() and len(retry_after) < 10 else 0
    return Posted(status_code=status, problem=f"it answers {status}{moved}", retry_after_seconds=asked)
