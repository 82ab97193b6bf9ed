"""The process that speaks to an MLflow server; it has the server's token, and neither database nor settings."""

import sys
from typing import Any

from workers.fetching.child_server import become_child
from workers.tracking.conversation import converse
from workers.tracking.json_api import JsonApi
from workers.tracking.mlflow_run import MlflowRun, RunFacts


class LimitedRun:
    """A run of MLflow; each request is answered within the time that a round of calls may take."""

    def __init__(self, first: dict[str, Any]) -> None:
        service = first["service"]
        self._seconds = float(service["round_seconds"])
        self._api = JsonApi(
            base=service["url"].rstrip("/"),
            username=service["username"],
            token=service["token"],
            allow=tuple(service["allow"]),
            call_seconds=float(service["timeout_seconds"]),
        )
        self.secrets = self._api.secrets
        self._run = MlflowRun(self._api, RunFacts(**first["facts"]))

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
