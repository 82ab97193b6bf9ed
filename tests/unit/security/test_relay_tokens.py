"""Tokens of relays: one for each attempt and fencing token, the same in every process with the secret."""

from app.security.relay_tokens import relay_token

TOKEN = relay_token("secret", job_id="job-1", attempt=2, fence=3)


def test_token_is_computed_anywhere_and_fits_the_first_line() -> None:
    assert relay_token("secret", job_id="job-1", attempt=2, fence=3) == TOKEN
    assert len(TOKEN) == 64
    assert TOKEN.isalnum()


def test_token_differs_with_each_part_of_what_it_is_for() -> None:
    others = {
        relay_token("other", job_id="job-1", attempt=2, fence=3),
        relay_token("secret", job_id="job-2", attempt=2, fence=3),
        relay_token("secret", job_id="job-1", attempt=3, fence=3),
        relay_token("secret", job_id="job-1", attempt=2, fence=4),
        relay_token("secret", job_id="job-1", attempt=23, fence=3),
    }
    assert len(others) == 5
    assert TOKEN not in others
