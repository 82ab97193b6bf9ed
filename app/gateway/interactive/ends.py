"""How sessions end: the reason that people and the audit trail read, and how the WebSocket is closed."""

import json
from dataclasses import dataclass

NORMAL, GOING_AWAY, PROTOCOL, ENDED = 1000, 1001, 1002, 4000
"""Codes of the WebSocket's end. ENDED: the platform has ended the session, or it could not begin."""

MOST_REASON_BYTES = 123  # of a close frame


@dataclass(frozen=True)
class End:
    """``exit_code`` is the command's; None: it did not come to its end, or there is none."""

    reason: str
    code: int = ENDED
    exit_code: int | None = None

    @property
    def status(self) -> bytes:
        """The payload of the last frame for a client that has not got the command's own."""
        return json.dumps({"exit_code": self.exit_code, "signal": None, "message": self.reason}).encode()

    @property
    def short_reason(self) -> str:
        """What fits into a close frame."""
        return self.reason.encode()[:MOST_REASON_BYTES].decode(errors="ignore")


CLIENT_LEFT = End("the client has closed the connection", NORMAL)
CLIENT_GONE = End("the client does not answer any more")
STOPPING = End("this gateway is stopping; open another session", GOING_AWAY)
PORT_CLOSED = End("the port has closed the connection", NORMAL)


def command_ended(payload: bytes) -> End:
    """By the last frame of the session server. A hostile job may send anything."""
    try:
        status = json.loads(payload)
        exit_code, message = status["exit_code"], str(status.get("message") or "")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return End("the session server's last message cannot be read", PROTOCOL)
    if type(exit_code) is not int or not -256 <= exit_code <= 256:
        exit_code = None
    return End(message[:1000] or f"the command has ended with exit code {exit_code}", NORMAL, exit_code)
