"""What the end of an attempt says of its node."""

import pytest

from app.domain.errors import ERROR_TYPES
from app.domain.lifecycle.outcomes import OutcomeKind
from app.domain.lifecycle.retry_policy import may_retry
from app.domain.nodes.reliability import DISCONNECTS, FAULTS, effect_on_node


@pytest.mark.parametrize(
    ("kind", "cause", "said"),
    [
        ("completed", "", ("completions", 1.0, True)),
        ("paused", "", ("completions", 1.0, True)),
        ("preempted", "", ("completions", 1.0, True)),
        ("cancelled", "", None),
        ("requeued", "", None),
        ("requeued", "NODE_LOST", ("disconnects", 0.0, False)),
        ("failed", "NODE_LOST", ("disconnects", 0.0, False)),
        ("failed", "SUPERVISOR_LOST", ("disconnects", 0.0, False)),
        ("failed", "INTERNAL", ("faults", 0.0, False)),
        ("failed", "DEVICE_FAULT", ("faults", 0.0, True)),
    ],
)
def test_only_what_is_the_nodes_counts(kind: OutcomeKind, cause: str, said: tuple[str, float, bool] | None) -> None:
    verdict = effect_on_node(kind, cause, trained=True, left_behind=False)

    assert (None if verdict is None else (verdict.counter, verdict.towards, verdict.is_certain)) == said


@pytest.mark.parametrize("cause", sorted(set(ERROR_TYPES) - DISCONNECTS - FAULTS))
def test_what_a_script_or_we_ourselves_may_cause_says_nothing_of_the_node(cause: str) -> None:
    assert effect_on_node("failed", cause, trained=True, left_behind=False) is None


def test_what_stopped_before_it_trained_is_no_merit() -> None:
    assert effect_on_node("paused", "", trained=False, left_behind=False) is None


@pytest.mark.parametrize("kind", ["completed", "cancelled", "failed"])
def test_a_process_that_can_not_be_ended_is_a_fault_however_the_job_ended(kind: OutcomeKind) -> None:
    verdict = effect_on_node(kind, "", trained=True, left_behind=True)

    assert verdict is not None
    assert (verdict.counter, verdict.towards, verdict.is_certain) == ("faults", 0.0, True)


def test_causes_are_known_ones() -> None:
    assert all(may_retry(cause) for cause in DISCONNECTS | FAULTS)
