"""The wait of a sweep's next trials is asked once for equal ones of a step."""

from typing import Any

from sqlalchemy.orm import Session

from app.domain.scheduling.resources import Request
from app.services.sweeps.reading.forecast import FRESH_SECONDS, StartForecast

OF_QUEUE: dict[str, Any] = {"queue": "default", "priority": 5, "project": "default", "preemptible": True}
ONE, TWO = Request(device_count=1, device_kind="cpu"), Request(device_count=2, device_kind="cpu")


class Counted:
    """Estimates of a cluster with three free devices; ``questions`` are those that it was asked."""

    def __init__(self) -> None:
        self.questions: list[tuple[Request, int]] = []

    def of_new(self, session: Session, request: Request, **_asked: Any) -> float | None:
        raise AssertionError(f"asked of one {request} in {session}, not of several")

    def of_several(self, session: Session, request: Request, count: int, **_asked: Any) -> list[float | None]:
        del session
        self.questions.append((request, count))
        return [1.0, 1.0, 1.0, None][:count]


def test_trials_of_one_step_are_told_from_one_question() -> None:
    estimates = Counted()
    forecast = StartForecast(estimates, most=4)

    def made(request: Request) -> float | None:
        found = forecast.of_new(Session(), request, **OF_QUEUE)
        forecast.advance()
        return found

    assert [made(ONE) for _ in range(4)] == [1.0, 1.0, 1.0, None]
    assert forecast.of_new(Session(), ONE, **OF_QUEUE) == 1.0
    assert forecast.of_new(Session(), ONE, **OF_QUEUE) == 1.0, "nothing was made in between"
    assert estimates.questions == [(ONE, 4)] * 2
    assert made(TWO) == 1.0
    assert made(ONE) == 1.0
    forecast.forget()
    assert made(ONE) == 1.0
    assert estimates.questions == [(ONE, 4), (ONE, 4), (TWO, 4), (ONE, 4), (ONE, 4)]


def test_answer_that_is_old_is_not_used() -> None:
    estimates, now = Counted(), [100.0]
    forecast = StartForecast(estimates, most=4, clock=lambda: now[0])

    for later, questions in ((0.0, 1), (FRESH_SECONDS, 1), (0.1, 2), (FRESH_SECONDS, 2)):
        now[0] += later
        assert forecast.of_new(Session(), ONE, **OF_QUEUE) == 1.0
        forecast.advance()
        assert estimates.questions == [(ONE, 4)] * questions
