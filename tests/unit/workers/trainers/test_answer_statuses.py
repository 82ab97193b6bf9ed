"""What the statuses of requests that were not answered say."""

import pytest

from workers.trainers.answer_statuses import Cause, cause_of


@pytest.mark.parametrize(
    ("statuses", "cause"),
    [
        ((499,), Cause.RUN_ENDS),
        ((408, 409, 429, 502, 503, 504), Cause.AWAY),
        ((401, 403, 404), Cause.NO_SUCH_MODEL),
        ((500, 501, 505), Cause.FAILED),
        ((302, 400, 405, 413, 415, 422, 431), Cause.REFUSED),
    ],
)
def test_every_status_has_one_cause(statuses: tuple[int, ...], cause: Cause) -> None:
    assert {cause_of(status) for status in statuses} == {cause}
