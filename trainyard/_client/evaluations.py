"""The client's calls about evaluations: benchmarks of a model, and comparisons of them."""

import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from trainyard import records
from trainyard._client.calls import Calls, RetryPolicy, as_list, forwarded, query_of, without_unset
from trainyard._client.http import quote
from trainyard._client.waiting import poll


class Evaluations:
    """An evaluation's id is that of its job, so that ``Client.logs``, ``events``, ``artifacts`` … take it."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def create(
        self, document: Mapping[str, Any], *, idempotency_key: str = "", tokens: Mapping[str, str] | None = None
    ) -> records.CreatedEvaluation:
        """Measure a model on benchmarks. ``tokens`` as in ``Client.submit``."""
        headers = {"Idempotency-Key": idempotency_key or str(uuid.uuid4()), **forwarded(tokens)}
        answer = self._calls.record("POST", "/v1/evaluations", body=document, headers=headers)
        return cast("records.CreatedEvaluation", answer)

    def dry_run(
        self, document: Mapping[str, Any], *, tokens: Mapping[str, str] | None = None, inspect: bool = False
    ) -> records.DryRun:
        """Run all checks without measuring: the plan and the warnings; with ``inspect`` also ``data``: what is found
        in the first records, which takes up to a minute.
        """
        query, headers = query_of(dry_run="true", inspect="true" if inspect else ""), forwarded(tokens)
        answer = self._calls.record("POST", "/v1/evaluations", query=query, body=document, headers=headers)
        return cast("records.DryRun", answer)

    def get(self, evaluation_id: str, *, patience: RetryPolicy | None = None) -> records.Evaluation:
        """``patience`` overrides the client's retry policy; use ``NO_RETRY`` for callers that poll themselves."""
        calls = Calls(self._calls.http, patience) if patience else self._calls
        return cast("records.Evaluation", calls.record("GET", _evaluation(evaluation_id)))

    def list(self, *, status: Iterable[str] = (), order_by: str = "", **filters: str) -> Iterator[records.Evaluation]:
        """Those that match all filters, newest first, page after page.

        ``filters``: ``job_id``, the job whose model is measured, ``name`` (its beginning), ``queue``, ``project``.
        """
        query = query_of(status=as_list(status), order_by=order_by, **filters)
        return cast("Iterator[records.Evaluation]", self._calls.pages("/v1/evaluations", "evaluations", query))

    def delete(self, evaluation_id: str) -> None:
        """Delete an ended evaluation with its files."""
        self._calls.send("DELETE", _evaluation(evaluation_id))

    def cancel(self, evaluation_id: str, *, reason: str = "") -> records.Evaluation:
        answer = self._calls.record("POST", f"{_evaluation(evaluation_id)}/cancel", body={"reason": reason})
        return cast("records.Evaluation", answer)

    def compare(self, ids: Iterable[str], *, baseline: str = "") -> records.EvaluationComparison:
        """Differences to the baseline, by default the first of ``ids``, on the same samples, with 95 % intervals."""
        body = {"ids": as_list(ids), **without_unset(baseline=baseline or None)}
        return cast("records.EvaluationComparison", self._calls.record("POST", "/v1/evaluations/compare", body=body))

    def wait(
        self, evaluation_id: str, *, timeout_seconds: float = float("inf"), poll_seconds: float = 1.0
    ) -> records.Evaluation:
        """The evaluation once it has ended. Raises TimeoutError; tolerates a server that is away for up to a minute."""

        def ask(most_seconds: float) -> records.Evaluation:
            answer = self._calls.http.json("GET", _evaluation(evaluation_id), most_seconds=most_seconds)
            return cast("records.Evaluation", answer)

        return poll(
            ask,
            lambda found: found["status"] in records.TERMINAL,
            f"evaluation {evaluation_id} has not ended",
            timeout_seconds=timeout_seconds,
            poll_seconds=poll_seconds,
        )


def _evaluation(evaluation_id: str) -> str:
    return f"/v1/evaluations/{quote(evaluation_id)}"
