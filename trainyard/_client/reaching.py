"""The part of the client that reaches running jobs: sessions, ports, sandboxes that stay after a failure."""

from collections.abc import Iterator, Sequence
from typing import cast
from urllib.parse import quote

from trainyard._client.calls import Calls, query_of, without_unset
from trainyard._records.interactive import InteractiveSession, JobPort, OpenedSession, PortUrl
from trainyard.records import Job

_CHUNK_BYTES = 64 << 10


class Reaching:
    """The client's methods about what people do in running jobs."""

    _calls: Calls

    def create_session(  # noqa: PLR0913  a session's request has this many fields
        self,
        job_id: str,
        *,
        kind: str,
        rank: int | None = None,
        role: str | None = None,
        index: int | None = None,
        command: Sequence[str] | None = None,
        tty: bool | None = None,
        rows: int | None = None,
        columns: int | None = None,
        term: str | None = None,
        port: int | None = None,
    ) -> OpenedSession:
        """Have a session opened: kind exec (with a command), shell or port_forward (with a port).

        With a role, ``rank`` is one within its instance ``index``. Open the WebSocket at ``url`` with the ticket,
        within a minute and once.
        """
        terminal = {"tty": tty, "rows": rows, "columns": columns, "term": term}
        words = None if command is None else [*command]
        place = {"rank": rank, "role": role, "index": index}
        body = without_unset(kind=kind, command=words, port=port, **place, **terminal)
        return cast("OpenedSession", self._calls.record("POST", f"{_job(job_id)}/sessions", body=body))

    def sessions(self, job_id: str, *, order_by: str = "") -> Iterator[InteractiveSession]:
        """The sessions of a job, the newest first."""
        found = self._calls.pages(f"{_job(job_id)}/sessions", "sessions", query_of(order_by=order_by))
        return cast("Iterator[InteractiveSession]", found)

    def session(self, job_id: str, session_id: str) -> InteractiveSession:
        return cast("InteractiveSession", self._calls.record("GET", _session(job_id, session_id)))

    def end_session(self, job_id: str, session_id: str) -> InteractiveSession:
        """Have a session ended, within a second."""
        return cast("InteractiveSession", self._calls.record("DELETE", _session(job_id, session_id)))

    def recording(self, job_id: str, session_id: str) -> Iterator[bytes]:
        """The recording of a session (asciicast v2), in pieces. Raises NotFound for one that is not recorded."""
        with self._calls.http.open("GET", f"{_session(job_id, session_id)}/recording") as response:
            while chunk := response.read(_CHUNK_BYTES):
                yield chunk

    def ports(self, job_id: str) -> list[JobPort]:
        """The ports of a job, with their addresses."""
        return cast("list[JobPort]", self._calls.record("GET", f"{_job(job_id)}/ports")["ports"])

    def port_url(self, job_id: str, name: str, *, seconds: int | None = None) -> PortUrl:
        """An address with a token, for a browser; it may be used for so long."""
        path = f"{_job(job_id)}/ports/{quote(name, safe='')}/url"
        return cast("PortUrl", self._calls.record("POST", path, body=without_unset(seconds=seconds)))

    def release(self, job_id: str) -> Job:
        """End an attempt whose sandbox stays after a failure of its script."""
        return Job.of(self._calls.record("POST", f"{_job(job_id)}/release"))


def _job(job_id: str) -> str:
    return f"/v1/jobs/{quote(job_id, safe='')}"


def _session(job_id: str, session_id: str) -> str:
    return f"{_job(job_id)}/sessions/{quote(session_id, safe='')}"
