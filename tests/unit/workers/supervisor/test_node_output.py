"""The size of a node's output is written as the outcome is: an outage of the database costs no attempt."""

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from sqlalchemy.exc import OperationalError

from app.domain.errors import LeaseLost
from app.services.attempts import node_outputs
from app.services.attempts.node_outputs import OutputSize
from workers.supervisor import node_output
from workers.supervisor.finished_attempt import FinishedAttempt
from workers.supervisor.recording.model_export import Output, OutputLimits


@pytest.mark.parametrize("last", [OutputSize(files=1, size_bytes=2), LeaseLost("gone")])
def test_outage_of_the_database_is_waited_for(monkeypatch: pytest.MonkeyPatch, last: OutputSize | LeaseLost) -> None:
    answers: list[OutputSize | Exception] = [
        OperationalError("", {}, Exception("away"), connection_invalidated=True),
        last,
    ]

    def announce(*_: object) -> OutputSize:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(node_outputs, "announce", announce)
    monkeypatch.setattr(node_output, "RETRY_SECONDS", 0.0)
    attempt = cast("FinishedAttempt", SimpleNamespace(db=None, work=None, is_lost=lambda: False))
    output, limits = Output(Path(), {"a": "a"}, size_bytes=2), OutputLimits(files=1, size_mb=1, size_rule="x")

    if isinstance(last, LeaseLost):
        with pytest.raises(LeaseLost):
            node_output.refuse_too_much(attempt, output, limits)
    else:
        node_output.refuse_too_much(attempt, output, limits)
    assert not answers
