"""The client's calls about sweeps and their trials."""

import uuid
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Literal, cast

from trainyard import records
from trainyard._client.calls import Calls, RetryPolicy, as_list, forwarded, query_of, without_unset
from trainyard._client.events import StreamEvent
from trainyard._client.http import quote
from trainyard._client.sweep_figures import SweepFigures
from trainyard._client.waiting import poll


class Sweeps:
    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self.figures = SweepFigures(calls)

    def create(
        self, document: Mapping[str, Any], *, idempotency_key: str = "", tokens: Mapping[str, str] | None = None
    ) -> records.CreatedSweep:
        """Create a sweep; a coordinator makes its trials. ``tokens`` as in ``Client.submit``."""
        headers = {"Idempotency-Key": idempotency_key or str(uuid.uuid4()), **forwarded(tokens)}
        return cast("records.CreatedSweep", self._calls.record("POST", "/v1/sweeps", body=document, headers=headers))

    def dry_run(self, document: Mapping[str, Any], *, tokens: Mapping[str, str] | None = None) -> records.SweepPlan:
        """Run all checks without creating: the size of the grid, the rungs, and the first values."""
        query, headers = query_of(dry_run="true"), forwarded(tokens)
        return cast(
            "records.SweepPlan", self._calls.record("POST", "/v1/sweeps", query=query, body=document, headers=headers)
        )

    def get(self, sweep_id: str, *, patience: RetryPolicy | None = None) -> records.Sweep:
        """``patience`` overrides the client's retry policy; use ``NO_RETRY`` for callers that poll themselves."""
        calls = Calls(self._calls.http, patience) if patience else self._calls
        return cast("records.Sweep", calls.record("GET", _sweep(sweep_id)))

    def list(
        self,
        *,
        status: Iterable[str] = (),
        labels: Mapping[str, str] | None = None,
        order_by: str = "",
        **filters: str | datetime,
    ) -> Iterator[records.Sweep]:
        """Sweeps that match all filters, newest first, page after page.

        ``filters``: ``name``, ``project``, ``created_after``, ``created_before``, ``created_by`` (the id of a key, or
        `me`), ``handle`` (an id, a name, or the end of an id).
        """
        of_labels = {f"labels.{key}": value for key, value in (labels or {}).items()}
        query = query_of(status=as_list(status), order_by=order_by, **of_labels, **filters)
        return cast("Iterator[records.Sweep]", self._calls.pages("/v1/sweeps", "sweeps", query))

    def change(
        self,
        sweep_id: str,
        *,
        budget: Mapping[str, Any] | None = None,
        priority: int | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> records.Sweep:
        """Change parts of the budget, the priority of further trials, or all labels; None for a bound removes it.

        With a larger budget a completed sweep continues with what it knows.
        """
        body = without_unset(budget=budget, priority=priority, labels=labels)
        return cast("records.Sweep", self._calls.record("PATCH", _sweep(sweep_id), body=body))

    def delete(self, sweep_id: str, *, jobs: bool = False) -> records.DeletedSweep:
        """Delete an ended sweep; with ``jobs`` also the jobs of its trials, with their files, otherwise those stay."""
        answer = self._calls.send("DELETE", _sweep(sweep_id), query=query_of(jobs="true" if jobs else ""))
        # Without jobs there is no answer, nor when an earlier try succeeded whose answer was lost.
        return cast("records.DeletedSweep", answer or {"sweep_id": sweep_id, "jobs": 0, "jobs_left": 0})

    def pause(self, sweep_id: str, *, trials: Literal["pause", "finish"] = "pause") -> records.Sweep:
        """Make no new trials; running ones are saved and paused, or with ``finish`` run to their end."""
        return self._command(sweep_id, "pause", {"trials": trials})

    def resume(self, sweep_id: str) -> records.Sweep:
        return self._command(sweep_id, "resume", {})

    def stop(self, sweep_id: str) -> records.Sweep:
        """Make no new trials; the sweep completes when the running ones have ended."""
        return self._command(sweep_id, "stop", {})

    def cancel(self, sweep_id: str, *, reason: str = "") -> records.Sweep:
        """Cancel the sweep and its running trials."""
        return self._command(sweep_id, "cancel", {"reason": reason})

    def fork(self, sweep_id: str, *, idempotency_key: str = "", **changes: Any) -> records.CreatedSweep:
        """Create a sweep of the same job that knows what this one has found; ``changes`` replace parts of its document.

        Those may be ``name``, ``labels``, ``parameters``, ``require``, ``method``, ``early_stopping``, ``budget``.
        """
        headers = {"Idempotency-Key": idempotency_key or str(uuid.uuid4())}
        answer = self._calls.record("POST", f"{_sweep(sweep_id)}/fork", body=changes, headers=headers)
        return cast("records.CreatedSweep", answer)

    def wait(self, sweep_id: str, *, timeout_seconds: float = float("inf"), poll_seconds: float = 1.0) -> records.Sweep:
        """The sweep once it has ended. Raises TimeoutError; tolerates a server that is away for up to a minute."""

        def ask(most_seconds: float) -> records.Sweep:
            return cast("records.Sweep", self._calls.http.json("GET", _sweep(sweep_id), most_seconds=most_seconds))

        return poll(
            ask,
            lambda sweep: sweep["status"] in records.SWEEP_TERMINAL,
            f"sweep {sweep_id} has not ended",
            timeout_seconds=timeout_seconds,
            poll_seconds=poll_seconds,
        )

    def trials(self, sweep_id: str, *, state: Iterable[str] = (), order_by: str = "") -> Iterator[records.Trial]:
        """By number, page after page, unless ``order_by`` says otherwise."""
        query = query_of(state=as_list(state), order_by=order_by)
        return cast("Iterator[records.Trial]", self._calls.pages(f"{_sweep(sweep_id)}/trials", "trials", query))

    def trial(self, sweep_id: str, number: int) -> records.Trial:
        return cast("records.Trial", self._calls.record("GET", _trial(sweep_id, number)))

    def add_trial(self, sweep_id: str, values: Mapping[str, records.Value]) -> records.Trial:
        """Try these values, too; the trial counts for the budget."""
        path = f"{_sweep(sweep_id)}/trials"
        return cast("records.Trial", self._calls.record("POST", path, body={"values": values}))

    def stop_trial(self, sweep_id: str, number: int) -> records.Trial:
        """End a running trial early; what it has measured counts."""
        return cast("records.Trial", self._calls.record("POST", f"{_trial(sweep_id, number)}/stop", body={}))

    def promote_trial(self, sweep_id: str, number: int) -> records.Trial:
        """Exempt a running trial from early stopping."""
        return cast("records.Trial", self._calls.record("POST", f"{_trial(sweep_id, number)}/promote", body={}))

    def best(self, sweep_id: str, *, top: int = 1, document: bool = False) -> records.BestTrials:
        """The best trials, best first; of several objectives the Pareto front. ``document`` adds job documents."""
        query = query_of(top=top, document="true" if document else "")
        return cast("records.BestTrials", self._calls.record("GET", f"{_sweep(sweep_id)}/best", query=query)["trials"])

    def replay(self, sweep_id: str, *, first: int | None = None, last: int | None = None) -> records.Replay:
        """Compute every suggestion and every decision again from what is stored, and compare.

        ``first`` and ``last``: only of the trials with these numbers, as of a sweep that is too large for one request;
        with ``first`` alone as many as one request computes in about 10 s, and ``next_from`` of the answer is the next.
        """
        query = query_of(**{"from": first, "to": last})
        return cast("records.Replay", self._calls.record("GET", f"{_sweep(sweep_id)}/replay", query=query))

    def events(self, sweep_id: str) -> Iterator[records.Event]:
        """The sweep's history, oldest first."""
        return cast("Iterator[records.Event]", self._calls.pages(f"{_sweep(sweep_id)}/events", "events"))

    def follow_events(self, sweep_id: str, *, last_id: str = "") -> Iterator[StreamEvent]:
        """The history and its additions, until the sweep has ended."""
        return self._calls.stream(f"{_sweep(sweep_id)}/events", last_id=last_id)

    def _command(self, sweep_id: str, name: str, body: Mapping[str, Any]) -> records.Sweep:
        return cast("records.Sweep", self._calls.record("POST", f"{_sweep(sweep_id)}/{name}", body=body))


def _sweep(sweep_id: str) -> str:
    return f"/v1/sweeps/{quote(sweep_id)}"


def _trial(sweep_id: str, number: int) -> str:
    return f"{_sweep(sweep_id)}/trials/{number}"
