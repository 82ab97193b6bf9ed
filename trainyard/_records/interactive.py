"""Types of the server's answers about sessions and ports of running jobs, part of trainyard.records."""

from typing import TypedDict


class InteractiveSession(TypedDict):
    """A session in a running job; ``status`` is waiting (for its client), open or ended."""

    session_id: str
    job_id: str
    attempt: int
    kind: str
    rank: int
    role: str | None
    index: int | None
    command: list[str]
    port: int | None
    tty: bool
    status: str
    recorded: bool
    created_by: str
    created_by_name: str
    created_at: str
    started_at: str | None
    ended_at: str | None
    end_reason: str
    exit_code: int | None
    seconds: float | None
    bytes_in: int
    bytes_out: int


class OpenedSession(TypedDict):
    """A session that waits for its client: the WebSocket ``url`` with ``ticket`` as bearer, once."""

    session: InteractiveSession
    url: str
    ticket: str
    ticket_expires_at: str
    protocol: str


class JobPort(TypedDict):
    """A port of a job; ``url`` is None where browsers can't reach it, ``port`` 0 is that of its notebook."""

    name: str
    port: int
    protocol: str
    url: str | None
    may_open: bool
    keep_prefix: bool
    authorized_users: list[str]
    authorized_groups: list[str]
    role: str | None
    index: int


class PortUrl(TypedDict):
    url: str
    token: str
    expires_at: str
