"""The client's calls about inference jobs: batches and features."""

import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from trainyard import records
from trainyard._client.calls import Calls, RetryPolicy, as_list, forwarded, query_of
from trainyard._client.http import quote


class InferenceJobs:
    """Batches and features. They are jobs: ``Client.wait``, ``cancel``, ``pause`` and ``artifacts`` take their ids."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def create(
        self, document: Mapping[str, Any], *, idempotency_key: str = "", tokens: Mapping[str, str] | None = None
    ) -> records.CreatedInference:
        """Submit a batch or a features job. ``tokens`` as in ``Client.submit``."""
        headers = {"Idempotency-Key": idempotency_key or str(uuid.uuid4()), **forwarded(tokens)}
        answer = self._calls.record("POST", "/v1/inference", body=document, headers=headers)
        return cast("records.CreatedInference", answer)

    def dry_run(
        self, document: Mapping[str, Any], *, tokens: Mapping[str, str] | None = None, inspect: bool = False
    ) -> records.DryRun:
        """Run all checks without submitting: the plan and the warnings; with ``inspect`` also ``data``: what is found
        in the first records, which takes up to a minute.
        """
        query, headers = query_of(dry_run="true", inspect="true" if inspect else ""), forwarded(tokens)
        answer = self._calls.record("POST", "/v1/inference", query=query, body=document, headers=headers)
        return cast("records.DryRun", answer)

    def get(self, job_id: str, *, patience: RetryPolicy | None = None) -> records.InferenceJob:
        """``patience`` overrides the client's retry policy; use ``NO_RETRY`` for callers that poll themselves."""
        calls = Calls(self._calls.http, patience) if patience else self._calls
        return cast("records.InferenceJob", calls.record("GET", f"/v1/inference/{quote(job_id)}"))

    def list(self, *, status: Iterable[str] = (), order_by: str = "", **filters: str) -> Iterator[records.InferenceJob]:
        """Those that match all filters, newest first, page after page.

        ``filters``: ``kind``, ``name`` (its beginning), ``queue``, ``project``.
        """
        query = query_of(status=as_list(status), order_by=order_by, **filters)
        return cast("Iterator[records.InferenceJob]", self._calls.pages("/v1/inference", "inference", query))
