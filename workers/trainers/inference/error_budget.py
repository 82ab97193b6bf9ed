"""Counts the records without an answer, and ends the job when there are more than its document allows."""

from collections.abc import Iterable
from typing import Any

from app.domain.spec.inference import FAIL, OnRecordError
from workers.trainers.failures import DataInvalid
from workers.trainers.inference.parts import ERRORS_SHOWN, OutputPart


class ErrorBudget:
    """Of all ``records`` of a job, over all its attempts."""

    def __init__(self, rule: OnRecordError, records: int) -> None:
        self._rule = rule
        self._records = records
        self._failed = 0
        self._first: list[dict[str, Any]] = []

    def spend(self, part: OutputPart) -> None:
        """Add the errors of one part. Raises DataInvalid."""
        self._failed += part.counts.failed
        self._first = sorted([*self._first, *part.errors], key=lambda each: int(each["index"]))[:ERRORS_SHOWN]
        if not self._failed:
            return
        if self._rule.action == FAIL:
            raise DataInvalid(f"a record has no answer, and on_error.action is {FAIL}: {_listed(self._first[:1])}")
        if self._failed > self._rule.max_share * self._records:
            raise DataInvalid(
                f"at least {self._failed} of {self._records} records have no answer, on_error.max_share allows "
                f"{self._rule.max_share:g} of all; the first are: {_listed(self._first)}"
            )


def _listed(errors: Iterable[dict[str, Any]]) -> str:
    return "; ".join(f"{each['where']}: {each['code']} {each['message']}" for each in errors)
