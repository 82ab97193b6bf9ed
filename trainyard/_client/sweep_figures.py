"""The client's calls about figures of sweeps, part of trainyard._client.sweeps."""

import http.client
import time
from typing import Any, Literal

from trainyard._client.calls import Calls, RetryState, query_of
from trainyard._client.errors import ApiError, Unreachable
from trainyard._client.http import Query, quote

Figure = Literal["history", "parallel", "importance", "slice", "rungs", "front"]


class SweepFigures:
    """``options`` are the parameters of the figure's URL, such as ``objective``, ``parameters`` and ``max_points``."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def numbers(self, sweep_id: str, figure: Figure, **options: Any) -> dict[str, Any]:
        """What the figure shows."""
        return self._calls.record("GET", _figure(sweep_id, figure), query=query_of(**options))

    def picture(self, sweep_id: str, figure: Figure, **options: Any) -> str:
        """The figure as the text of an SVG file."""
        query, tries = list(query_of(**options)), RetryState(self._calls.patience)
        while True:
            try:
                return self._drawn(_figure(sweep_id, figure), query)
            except (Unreachable, ApiError) as error:
                time.sleep(tries.pause(error))

    def _drawn(self, path: str, query: Query) -> str:
        transport = self._calls.http
        with transport.open("GET", path, query=query, headers={"Accept": "image/svg+xml"}) as response:
            try:
                return response.read().decode()
            except (OSError, http.client.HTTPException) as error:
                raise Unreachable(f"the connection to {transport.url} broke: {error}") from error


def _figure(sweep_id: str, figure: str) -> str:
    return f"/v1/sweeps/{quote(sweep_id)}/figures/{quote(figure)}"
