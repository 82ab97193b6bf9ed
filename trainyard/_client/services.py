"""The client's calls about services: models that answer requests, and the requests themselves."""

import http.client
import json
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from trainyard import records
from trainyard._client.calls import Calls, RetryPolicy, as_list, forwarded, query_of, without_unset
from trainyard._client.errors import ApiError, ServerError, Unreachable
from trainyard._client.events import COMMENT, DONE, StreamEvent, parse
from trainyard._client.http import quote
from trainyard._client.waiting import poll

# A gateway sends a comment every 5 s while a request waits for a replica.
SILENCE_SECONDS = 60.0


class Services:
    """A handle is a service's id, or its name while it is live."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def create(
        self, document: Mapping[str, Any], *, idempotency_key: str = "", tokens: Mapping[str, str] | None = None
    ) -> records.CreatedService:
        """Create a service; a coordinator starts its replicas. ``tokens`` as in ``Client.submit``."""
        headers = {"Idempotency-Key": idempotency_key or str(uuid.uuid4()), **forwarded(tokens)}
        answer = self._calls.record("POST", "/v1/services", body=document, headers=headers)
        return cast("records.CreatedService", answer)

    def dry_run(self, document: Mapping[str, Any], *, tokens: Mapping[str, str] | None = None) -> records.DryRun:
        """Run all checks without creating: where a replica could run, and the warnings."""
        query, headers = query_of(dry_run="true"), forwarded(tokens)
        answer = self._calls.record("POST", "/v1/services", query=query, body=document, headers=headers)
        return cast("records.DryRun", answer)

    def get(self, handle: str, *, patience: RetryPolicy | None = None) -> records.Service:
        """``patience`` overrides the client's retry policy; use ``NO_RETRY`` for callers that poll themselves."""
        calls = Calls(self._calls.http, patience) if patience else self._calls
        return cast("records.Service", calls.record("GET", _service(handle)))

    def list(self, *, status: Iterable[str] = (), order_by: str = "", **filters: str) -> Iterator[records.Service]:
        """Those that match all filters, newest first, page after page; without ``status`` all that are live.

        ``filters``: ``name``, ``project``.
        """
        query = query_of(status=as_list(status), order_by=order_by, **filters)
        return cast("Iterator[records.Service]", self._calls.pages("/v1/services", "services", query))

    def change(self, handle: str, **changes: Mapping[str, Any]) -> records.Service:
        """Change parts of a service: ``replicas``, ``model``, ``adapters``, ``limits``, ``defaults``,
        ``resource_config``, ``scheduling_config``, ``environment``.

        Where replicas must be replaced, new ones answer before old ones are drained.
        """
        return cast("records.Service", self._calls.record("PATCH", _service(handle), body=changes))

    def scale(self, handle: str, *, min: int | None = None, max: int | None = None) -> records.Service:  # noqa: A002 – the names on the wire
        """Change how many replicas run."""
        return self.change(handle, replicas=without_unset(min=min, max=max))

    def delete(self, handle: str) -> None:
        """End a service: requests are refused at once, replicas finish those that they have."""
        self._calls.send("DELETE", _service(handle))

    def pause(self, handle: str) -> records.Service:
        """Drain all replicas, and refuse requests until it is resumed."""
        return cast("records.Service", self._calls.record("POST", f"{_service(handle)}/pause", body={}))

    def resume(self, handle: str) -> records.Service:
        return cast("records.Service", self._calls.record("POST", f"{_service(handle)}/resume", body={}))

    def wait(self, handle: str, *, timeout_seconds: float = float("inf"), poll_seconds: float = 1.0) -> records.Service:
        """The service once a replica answers, or once it has been paused or ended. Raises TimeoutError.

        One that may have no replicas gets its first one when it is asked something: it has nothing to wait for.
        """

        def ask(most_seconds: float) -> records.Service:
            return cast("records.Service", self._calls.http.json("GET", _service(handle), most_seconds=most_seconds))

        return poll(
            ask,
            lambda found: found["answering"] > 0 or found["status"] != "ACTIVE",
            f"no replica of {handle} answers",
            timeout_seconds=timeout_seconds,
            poll_seconds=poll_seconds,
        )

    def replicas(self, handle: str, *, status: Iterable[str] = ()) -> Iterator[records.Replica]:
        """The newest first, with those that have ended."""
        query = query_of(status=as_list(status))
        return cast("Iterator[records.Replica]", self._calls.pages(f"{_service(handle)}/replicas", "replicas", query))

    def events(self, handle: str) -> Iterator[records.ServiceEvent]:
        """The service's history, oldest first."""
        return cast("Iterator[records.ServiceEvent]", self._calls.pages(f"{_service(handle)}/events", "events"))

    def follow_events(self, handle: str, *, last_id: str = "") -> Iterator[StreamEvent]:
        """The history and its additions, until the service has ended."""
        return self._calls.stream(f"{_service(handle)}/events", last_id=last_id)

    def metrics(
        self, handle: str, *, names: Iterable[str] = (), max_points: int | None = None
    ) -> records.ServiceMetrics:
        """The load that gateways count now, and the curves of the replicas that run."""
        query = query_of(names=",".join(as_list(names)), max_points=max_points)
        return cast("records.ServiceMetrics", self._calls.record("GET", f"{_service(handle)}/metrics", query=query))

    def logs(self, handle: str, *, tail: int = 200, replica: int | None = None) -> records.LogLines:
        """The last lines of a replica, without ``replica`` of the newest one that has started."""
        query = query_of(tail=tail, replica=replica)
        return cast("records.LogLines", self._calls.record("GET", f"{_service(handle)}/logs", query=query)["lines"])

    def chat(self, model: str, messages: Iterable[Mapping[str, Any]], **fields: Any) -> Iterator[dict[str, Any]]:
        """The chunks of an answer as they are made, in OpenAI's form; ``fields`` are those of its request.

        ``model``: the name of a service, SERVICE/JOB for an adapter, or the id of a model. Raises ServerError when an
        answer ends before it is complete.
        """
        return self._answer("/v1/chat/completions", {"model": model, "messages": [*messages], **fields})

    def complete(self, model: str, prompt: str, **fields: Any) -> Iterator[dict[str, Any]]:
        """The chunks of a text that continues the prompt; otherwise as `chat`."""
        return self._answer("/v1/completions", {"model": model, "prompt": prompt, **fields})

    def rerank(
        self, model: str, query: str, documents: Iterable[str | Mapping[str, Any]], **fields: Any
    ) -> tuple[dict[str, Any], ...]:
        """The documents that answer the query best, first: each with ``index`` and ``relevance_score``, from 0 to 1.

        ``fields``: ``top_n``, ``return_documents``, ``max_tokens_per_doc``. The model is a service with task score.
        """
        body = {"model": model, "query": query, "documents": [*documents], **fields}
        with self._calls.http.open("POST", "/v1/rerank", body=body, timeout_seconds=SILENCE_SECONDS) as response:
            try:
                return tuple(json.loads(response.read())["results"])
            except (OSError, http.client.HTTPException) as error:
                raise Unreachable(f"the answer broke off: {error}") from error

    def usage(self, *, group: Iterable[str] = (), **filters: str) -> Iterator[records.Usage]:
        """What was asked: requests and tokens by ``group``, any of ``key``, ``model`` and ``day``.

        ``filters``: ``project``, ``since`` and ``until`` (days such as 2026-05-17).
        """
        query = query_of(group=",".join(as_list(group)), **filters)
        return cast("Iterator[records.Usage]", self._calls.pages("/v1/usage", "usage", query))

    def _answer(self, path: str, body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        headers = {"Accept": "text/event-stream"}
        with self._calls.http.open(
            "POST", path, body={**body, "stream": True}, headers=headers, timeout_seconds=SILENCE_SECONDS
        ) as response:
            yield from _chunks(response)


def _chunks(response: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    try:
        for name, _, text in parse(response):
            if name == COMMENT:
                continue
            if text == DONE:
                return
            chunk: dict[str, Any] = json.loads(text)
            if "error" in chunk:
                raise _broken_off(chunk["error"])
            yield chunk
    except (OSError, http.client.HTTPException) as error:
        raise Unreachable(f"the answer broke off: {error}") from error
    raise Unreachable("the answer ended without its end marker")


def _broken_off(problem: Mapping[str, Any]) -> ApiError:
    return ServerError(500, {"code": str(problem.get("code") or "INTERNAL"), "message": str(problem.get("message"))})


def _service(handle: str) -> str:
    return f"/v1/services/{quote(handle)}"
