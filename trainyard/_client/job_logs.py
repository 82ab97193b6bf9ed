"""The part of the client that reads the logs of jobs."""

from collections.abc import Iterator
from typing import cast
from urllib.parse import quote

from trainyard import records
from trainyard._client.calls import Calls, query_of
from trainyard._client.events import StreamEvent

_START = "0:0"


class JobLogs:
    """The client's methods that read the logs of jobs."""

    _calls: Calls

    def logs(self, job_id: str, *, tail: int = 200, rank: int | None = None, role: str = "") -> records.LogLines:
        query = query_of(tail=tail, follow="false", rank=rank, role=role)
        return cast("records.LogLines", self._calls.record("GET", _path(job_id), query=query)["lines"])

    def search_logs(  # noqa: PLR0913  what a search may ask for
        self,
        job_id: str,
        *,
        text: str = "",
        pattern: str = "",
        since: str = "",
        until: str = "",
        rank: int | None = None,
        role: str = "",
        attempt: int | None = None,
    ) -> Iterator[records.LogLine]:
        """All lines that match, oldest first; the server searches, for each part of the log anew.

        ``text`` matches in any case, ``pattern`` is of RE2's syntax, times are as 2026-05-17T09:30:00Z.
        """
        wanted = {"q": text, "pattern": pattern, "from": since, "to": until, "rank": rank, "role": role}
        wanted["attempt"] = attempt
        after: str | None = _START
        while after is not None:
            found = self._calls.record("GET", _path(job_id), query=[*query_of(**wanted), ("after", after)])
            yield from found["lines"]
            after = found["next"]

    def follow_logs(
        self, job_id: str, *, tail: int | None = None, rank: int | None = None, role: str = "", last_id: str = ""
    ) -> Iterator[StreamEvent]:
        query = query_of(follow="true", tail=tail, rank=rank, role=role)
        return self._calls.stream(_path(job_id), query, last_id=last_id)


def _path(job_id: str) -> str:
    return f"/v1/jobs/{quote(job_id)}/logs"
