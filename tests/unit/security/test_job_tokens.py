"""Tokens of jobs: of one attempt and one fence, and only from who has the secret."""

import pytest

from app.domain.ids import new_id
from app.security.job_tokens import JobToken, job_token, read_job_token

TOKEN = JobToken(job_id=new_id("job"), attempt=2, fence=7)


def test_own_token_says_whose_it_is() -> None:
    assert read_job_token("secret", job_token("secret", TOKEN)) == TOKEN


@pytest.mark.parametrize("change", [{"attempt": 3}, {"fence": 8}, {"job_id": new_id("job")}])
def test_each_attempt_and_fence_has_its_own(change: dict[str, str | int]) -> None:
    other = JobToken(**{**vars(TOKEN), **change})
    mine, theirs = job_token("secret", TOKEN), job_token("secret", other)
    forged = ".".join([*theirs.split(".")[:-1], mine.rpartition(".")[2]])

    assert mine != theirs
    assert read_job_token("secret", forged) is None


@pytest.mark.parametrize(
    "text",
    ["", "tyjob.", "tyjob.job-1.1.1.ff", job_token("other", TOKEN), job_token("secret", TOKEN) + "0", "x" * 10_000],
)
def test_other_texts_are_none(text: str) -> None:
    assert read_job_token("secret", text) is None
