"""A job's log as pages: what may be seen, lines of any place, a search, and the download."""

from urllib.parse import urlencode

import pytest

from app.security.permissions import Role
from app.storage.log_writer import LogWriter
from tests.builders.log_blocks import block
from tests.integration.web.conftest import Browser

CANARY = "<script>alert(1)</script>"


@pytest.fixture
def job_id(web: Browser) -> str:
    """A job with lines of two attempts and two ranks."""
    job_id = web.api.submit()
    storage = web.api.app.extensions["trainyard"].plane.storage
    LogWriter(storage, job_id, 1).append([block(1, "first attempt")])
    long = "x" * 5000
    LogWriter(storage, job_id, 2).append([block(1, "a", CANARY), block(3, long, rank=1), block(4, "d")])
    return job_id


def test_the_page_has_attempts_ranks_and_a_link_to_a_line(web: Browser, job_id: str):
    page = web.get(f"/ui/jobs/{job_id}/log?line=3")
    older = web.get(f"/ui/jobs/{job_id}/log?attempt=1")

    assert 'data-attempt="2"' in page.html
    assert 'data-last="4"' in page.html
    assert 'data-line="3"' in page.html
    assert f'data-live="log:{job_id}' in page.html
    assert 'data-attempt="1"' in older.html
    assert 'data-last="1"' in older.html
    assert f"/ui/jobs/{job_id}/log.txt?attempt=2" in page.links


def test_a_job_without_lines_says_so(web: Browser):
    page = web.get(f"/ui/jobs/{web.api.submit()}/log")

    assert "This job has written no lines yet." in page.text


def test_lines_of_any_place_are_read_and_long_ones_cut(web: Browser, job_id: str):
    found = web.json(f"/ui/jobs/{job_id}/log/lines.json?attempt=2&first=2&last=3")
    of_rank = web.json(f"/ui/jobs/{job_id}/log/lines.json?attempt=2&rank=0&first=1&last=500")
    whole = web.json(f"/ui/jobs/{job_id}/log/lines.json?attempt=2&first=3&last=3&whole=true")

    assert [(line[0], line[2]) for line in found["lines"]] == [(2, 0), (3, 1)]
    assert found["lines"][0][3] == CANARY
    assert [len(line[3]) for line in found["lines"]] == [len(CANARY), 2000]
    assert [line[4] for line in found["lines"]] == [False, True]
    assert (found["last"], found["newest"], found["ended"]) == (4, 2, False)
    assert [line[0] for line in of_rank["lines"]] == [1, 2, 4]
    assert len(whole["lines"][0][3]) == 5000


@pytest.mark.parametrize("query", ["first=1&last=501", "first=2&last=1"])
def test_more_lines_than_a_page_are_refused(web: Browser, job_id: str, query: str):
    web.get(f"/ui/jobs/{job_id}/log/lines.json?attempt=2&{query}", 400)


def test_a_search_finds_lines_and_names_a_broken_pattern(web: Browser, job_id: str):
    found = web.json(f"/ui/jobs/{job_id}/log/search.json?q=attempt")
    refused = web.get(f"/ui/jobs/{job_id}/log/search.json?pattern=(", 400)

    assert [line["line"] for line in found["lines"]] == ["first attempt"]
    assert (found["next"], found["searched"]) == (None, 5)
    assert "RE2" in refused.text


def test_a_pattern_that_would_hold_a_thread_for_hours_is_refused(web: Browser, job_id: str):
    wanted = urlencode({"pattern": "(?:.?){1000}" * 31 + "q"})

    assert "the pattern is too large" in web.get(f"/ui/jobs/{job_id}/log/search.json?{wanted}", 400).text


def test_what_is_searched_for_stays_text(web: Browser, job_id: str):
    page = web.get(f"/ui/jobs/{job_id}/log?q={CANARY}&regex=true&from=2030-01-01T00:00:00Z")

    assert CANARY not in page.html
    assert 'data-moment="2030-01-01T00:00:00Z"' in page.html


def test_the_download_has_all_lines(web: Browser, job_id: str):
    answer = web.client.get(f"/ui/jobs/{job_id}/log.txt?attempt=2")

    assert answer.mimetype == "text/plain"
    assert answer.headers["Content-Disposition"] == f'attachment; filename="{job_id}-attempt-2.log"'
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert [line.partition("] ")[2] for line in answer.get_data(as_text=True).splitlines()] == [
        "a",
        CANARY,
        "x" * 5000,
        "d",
    ]


@pytest.mark.parametrize("path", ["log", "log/lines.json?attempt=2&first=1&last=5", "log/search.json?q=a", "log.txt"])
def test_a_foreign_log_is_not_there(web: Browser, job_id: str, path: str):
    stranger = Browser(web.api)
    stranger.sign_in(web.api.make_key(Role.ADMIN, "other"))

    stranger.get(f"/ui/jobs/{job_id}/{path}", 404)
