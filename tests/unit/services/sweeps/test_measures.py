"""The optimizer step at which a job reaches a rung."""

import pytest
from sqlalchemy.orm import Session

from app.domain.sweeps.spec import EarlyStopping
from app.models import Job
from app.services.sweeps.measures import is_exact, step_of_rung

STEPS, EPOCHS = (EarlyStopping(name="asha", unit=unit, min=1, max=9) for unit in ("steps", "epochs"))


@pytest.mark.parametrize(
    ("rule", "total_steps", "total_epochs", "expected"),
    [
        (STEPS, 100, 10.0, [1, 2, 3]),
        (STEPS, None, None, [1, 2, 3]),
        (EPOCHS, 10, 10.0, [1, 2, 3]),  # each epoch is a single step
        (EPOCHS, 20, 10.0, [1, 3, 5]),
        (EPOCHS, 100, 10.0, [9, 19, 29]),
        (EPOCHS, None, None, [None, None, None]),
        (EPOCHS, 100, None, [None, None, None]),
    ],
)
def test_step_of_a_rung(
    rule: EarlyStopping, total_steps: int | None, total_epochs: float | None, expected: list[int | None]
) -> None:
    job = Job(total_steps=total_steps, total_epochs=total_epochs)

    # Only rungs of tokens ask the database.
    assert [step_of_rung(Session(), job, rule, rung) for rung in (1, 2, 3)] == expected


def test_step_of_a_rung_is_exact_in_steps_and_in_epochs_of_one_step() -> None:
    jobs = [Job(total_steps=total, total_epochs=10.0) for total in (10, 100)]

    assert [is_exact(job, STEPS) for job in jobs] == [True, True]
    assert [is_exact(job, EPOCHS) for job in jobs] == [True, False]
