"""How sessions end: the reason that people and the audit trail read, and how the WebSocket is closed."""

from dataclasses import dataclass

from trainyard.protocol.session_answers import Status

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
        return Status(exit_code=self.exit_code, message=self.reason).encoded()

    @property
    def short_reason(self) -> str:
        """What fits into a close frame."""
        return self.reason.encode(errors="replace")[:MOST_REASON_BYTES].decode(errors="ignore")


CLIENT_LEFT = End("the client has closed the connection", NORMAL)
CLIENT_GONE = End("the client does not answer any more")
STOPPING = End("this gateway is stopping; open another session", GOING_AWAY)
PORT_CLOSED = End("the port has closed the connection", NORMAL)
UNREADABLE = End("the session server's last message cannot be read", PROTOCOL)


def command_ended(status: Status) -> End:
    """By the last frame of the session server."""
    reason = status.message or f"the command has ended with exit code {status.exit_code}"
    return End(reason, NORMAL, status.exit_code)
