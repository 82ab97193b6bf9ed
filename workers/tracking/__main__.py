"""The process that speaks to an MLflow or Trackio server; it has its token, and neither database nor settings."""

import sys
from typing import Any

from app.domain.spec.model import TRACKIO
from workers.fetching.child.server import become_child
from workers.tracking.conversation import converse
from workers.tracking.json_api import JsonApi
from workers.tracking.mlflow_run import MlflowRun, RunFacts
from workers.tracking.trackio_run import TOKEN_HEADER, TrackioFacts, TrackioRun


class LimitedRun:
    """A run of either; each request is answered within the time that a round of calls may take."""

    def __init__(self, first: dict[str, Any]) -> None:
        service, facts = first["service"], first["facts"]
        is_trackio = service["kind"] == TRACKIO
        self._seconds = float(service["round_seconds"])
        self._api = JsonApi(
            base=service["url"].rstrip("/"),
            username=service["username"],
            token=service["token"],
            token_header=TOKEN_HEADER if is_trackio else "",
            allow=tuple(service["allow"]),
            call_seconds=float(service["timeout_seconds"]),
        )
        self.secrets = self._api.secrets
        self._run: MlflowRun | TrackioRun = (
            TrackioRun(self._api, TrackioFacts(**facts)) if is_trackio else MlflowRun(self._api, RunFacts(**facts))
        )

    def open(self) -> int:
        self._api.limit(self._seconds)
        return self._run.open()

    def act(self, request: dict[str, Any]) -> int:
        self._api.limit(self._seconds)
        if "points" in request:
            self._run.send(request["points"], request["seq"], request["attempt"])
        else:
            self._run.end(request["state"], request["at_ms"])
        return int(request["seq"])


def main() -> int:
    become_child()
    return converse(LimitedRun)


if __name__ == "__main__":
    sys.exit(main())
