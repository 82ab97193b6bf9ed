"""JSON requests to a tracking server, at addresses that were checked; what it answers is bounded and never trusted."""

import base64
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from app.domain.spec.rules.tracking import ALLOW_SETTING
from app.services.access.guarded_http import FAILURES, OutgoingRequest, exchange, problem_of
from workers.fetching.uris import shown
from workers.tracking.failures import PASSING, NotDelivered

MOST_BYTES = 4 << 20
CODE_CHARACTERS, MESSAGE_CHARACTERS = 64, 300  # of what a server says


class ServerRefuses(NotDelivered):
    """An answer other than 2xx; ``code`` is the server's own name for the error."""

    def __init__(self, status: int, code: str, message: str) -> None:
        text = f"it answers {status}" + (f" {code}" if code else "") + (f": {message}" if message else "")
        super().__init__(text, refused=status not in PASSING)
        self.code = code


@dataclass(kw_only=True)
class JsonApi:
    """``allow``: private hosts and networks that may be connected to; a call takes at most ``call_seconds``.

    ``token_header`` has the token in place of ``Authorization``.
    """

    base: str
    username: str
    token: str
    token_header: str = ""
    allow: tuple[str, ...]
    call_seconds: float
    deadline: float = 0.0  # of the requests to come, by the monotonic clock

    def limit(self, seconds: float) -> None:
        """All requests until the next call end within this time."""
        self.deadline = time.monotonic() + seconds

    @property
    def secrets(self) -> tuple[str, ...]:
        """Texts that no message may contain: the token, and the login that has it encoded."""
        # A server may echo the login with or without its padding. It is first: the token's text may be part of it.
        return tuple(filter(None, (self._login().rstrip("="), self.token)))

    def get(self, path: str, query: Mapping[str, str]) -> dict[str, Any]:
        """Raises NotDelivered."""
        return self._call("GET", f"{path}?{urlencode(query)}", None)

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Raises NotDelivered."""
        return self._call("POST", path, json.dumps(body).encode())

    def _call(self, method: str, path: str, body: bytes | None) -> dict[str, Any]:
        request = OutgoingRequest(method=method, url=f"{self.base}/{path}", headers=self._headers(), body=body)
        deadline = min(self.deadline, time.monotonic() + self.call_seconds)
        try:
            with exchange(request, self.allow, deadline) as (response, _):
                status, text = response.status, response.read(MOST_BYTES, decode_content=False)
        except TimeoutError as error:
            raise NotDelivered("it does not answer in time") from error
        except FAILURES as error:
            raise NotDelivered(problem_of(error, setting=ALLOW_SETTING)) from error
        answer = _object(text)
        if 200 <= status < 300:
            if answer is None:
                raise NotDelivered("it answers with something else than JSON; is url a tracking server?", refused=True)
            return answer
        raise ServerRefuses(status, *_said(answer or {}, self.secrets))

    def _headers(self) -> dict[str, str]:
        if not self.token:
            return {}
        if self.token_header:
            return {self.token_header: self.token}
        return {"Authorization": f"Basic {self._login()}" if self.username else f"Bearer {self.token}"}

    def _login(self) -> str:
        return base64.b64encode(f"{self.username}:{self.token}".encode()).decode() if self.username else ""


def _object(text: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(text or b"{}")
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _said(answer: Mapping[str, Any], secrets: tuple[str, ...]) -> tuple[str, str]:
    """(error code, message) of the server's answer, as far as they are texts: short, and without secrets."""
    code, message = answer.get("error_code"), answer.get("message", answer.get("error"))
    # Secrets go first: a part of one that a cut leaves is not found any more.
    return (
        shown(code, secrets)[:CODE_CHARACTERS] if isinstance(code, str) else "",
        " ".join(shown(message, secrets)[:MESSAGE_CHARACTERS].split()) if isinstance(message, str) else "",
    )
