"""A job's log in a browser: a list of any length, following, searching, links to lines, and text that is only text."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from app.storage.log_blocks import LogBlock
from app.storage.log_writer import LogWriter
from app.storage.storage import Storage
from tests.systems.running_up import wait_until
from tests.web.site import Site, wait_for

BEGUN = datetime(2030, 1, 1, 12, 0, tzinfo=UTC)
MANY = 1_000_000
ATTEMPT = 9  # of a job that was cancelled before: its own attempts have lower numbers
TALKS = """
import sys, time
for n in range(100_000):
    print(f"line {n} <img src=x onerror=alert(1)> \\x1b[31mred\\x1b[0m", flush=True)
    time.sleep(0.1)
"""


def log_of(site: Site, name: str, blocks: Any) -> str:
    """The id of a job that has ended and has these lines."""
    job_id = site.submit(name, steps=1)
    site.ask("POST", f"/v1/jobs/{job_id}/cancel")
    site.wait_for(job_id, "CANCELLED", "COMPLETED")
    writer = LogWriter(Storage(f"file://{Path(site.running.data_dir) / 'files'}"), job_id, ATTEMPT)
    for block in blocks:
        writer.append([block])
    return job_id


def lines(first: int, texts: list[str], *, rank: int = 0, second: int = 0) -> LogBlock:
    at = (BEGUN + timedelta(seconds=second)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    text = "".join(f"{text}\n" for text in texts).encode()
    return LogBlock(rank=rank, first=first, count=len(texts), at=at, text=text)


@pytest.fixture(scope="session")
def million(site: Site) -> str:
    step = 500
    return log_of(
        site,
        "million",
        (
            lines(first, [f"step {n}" + " Overflow" * (n % 250_000 == 0) for n in range(first, first + step)])
            for first in range(1, MANY, step)
        ),
    )


@pytest.fixture(scope="session")
def of_ranks(site: Site) -> str:
    """Eight ranks that write in turn, 3 lines each time."""
    texts = (lines(3 * turn + 1, [f"of {turn % 8}"] * 3, rank=turn % 8, second=turn) for turn in range(4000))
    return log_of(site, "of-ranks", texts)


@pytest.fixture(scope="session")
def long_lines(site: Site) -> str:
    """Of different lengths, also of wide letters, spaces, and tabs."""
    parts = ("word " * 60, "", "x" * 700, "列車 " * 50, " " * 300, "a\tb\t" * 20)
    texts = [f"line {n} {parts[n % len(parts)]}" for n in range(1, 3001)]
    return log_of(site, "long-lines", (lines(first, texts[first - 1 : first + 499]) for first in range(1, 3001, 500)))


def rows(page: Page) -> list[int]:
    return [int(text) for text in page.locator(".log-row a").all_inner_texts()]


def count(page: Page) -> int:
    """How many lines the page says there are."""
    return int(re.sub(r"\D", "", page.locator("#log-count").inner_text()))


def place_of(page: Page, n: int) -> bool:
    """Whether a line can be seen in the list."""
    return bool(
        page.evaluate(
            """(n) => {
                const log = document.getElementById("log").getBoundingClientRect();
                const line = document.querySelector(`.log-row a[data-n="${n}"]`)?.getBoundingClientRect();
                return line && line.top >= log.top - 1 && line.bottom <= log.bottom + 1;
            }""",
            n,
        )
    )


def test_a_million_lines_are_a_list_that_draws_those_in_sight(page: Page, million: str):
    page.goto(f"/ui/jobs/{million}/log")

    expect(page.get_by_text("step 1000000", exact=False)).to_be_visible()
    assert place_of(page, MANY)
    page.get_by_role("button", name="First").click()
    expect(page.locator(".log-row a").first).to_have_text("1")
    page.locator("#log").evaluate("log => log.scrollTop = log.scrollHeight / 2")
    expect(page.locator(".log-row a", has_text=re.compile("^50[0-9]{4}$|^49[0-9]{4}$")).first).to_be_visible()

    shown = rows(page)
    assert shown == list(range(shown[0], shown[0] + len(shown)))
    assert page.evaluate("document.querySelectorAll('*').length") < 2000


def test_keys_and_wheel_move_line_by_line_also_in_a_list_taller_than_browsers_allow(page: Page, million: str):
    page.goto(f"/ui/jobs/{million}/log?line=700000")
    expect(page.locator(".log-row.selected")).to_contain_text("step 700000")
    expect(page.locator(".log-row", has_text="step 700003")).to_be_visible()  # of the next page: all is loaded
    before = page.locator(".log-row.selected").bounding_box()

    page.locator("#log").focus()
    page.keyboard.press("ArrowDown")
    page.locator("#log").hover()
    page.mouse.wheel(0, 60)
    assert before
    wait_for(page, f"document.querySelector('.log-row.selected').getBoundingClientRect().top < {before['y'] - 70}")
    after = page.locator(".log-row.selected").bounding_box()

    assert after
    assert before["y"] - after["y"] == pytest.approx(80, abs=2)


def test_a_link_leads_to_its_line_and_a_line_has_a_link(page: Page, million: str):
    page.goto(f"/ui/jobs/{million}/log")
    page.get_by_label("Line", exact=True).fill("123456")
    page.keyboard.press("Enter")

    expect(page.locator(".log-row.selected")).to_contain_text("step 123456")
    expect(page.get_by_label("Selected line")).to_contain_text("Line 123,456")
    assert "line=123456" in page.url
    page.reload()

    expect(page.locator(".log-row.selected")).to_contain_text("step 123456")
    assert place_of(page, 123456)


def test_the_server_searches_a_million_lines_and_a_line_found_is_shown(page: Page, million: str):
    page.goto(f"/ui/jobs/{million}/log")
    page.get_by_label("Search", exact=True).fill("overflow")
    page.keyboard.press("Enter")

    expect(page.get_by_role("status").filter(has_text="found")).to_have_text(
        "4 lines found; all 1,000,000 lines were searched."
    )
    page.get_by_label("Lines found").get_by_role("link", name=re.compile("^500000")).click()

    expect(page.locator(".log-row.selected")).to_contain_text("step 500000 Overflow")
    expect(page.locator(".log-row.selected mark")).to_have_text("Overflow")


def test_hits_are_stepped_through(page: Page, million: str):
    page.goto(f"/ui/jobs/{million}/log?q=overflow")
    expect(page.locator("#log-hits li")).to_have_count(4)

    page.get_by_role("button", name="Next").click()
    expect(page.locator("#log-at")).to_have_text("1 of 4")
    expect(page.locator(".log-row.selected")).to_contain_text("step 250000")
    page.get_by_role("button", name="Previous").click()

    expect(page.locator("#log-at")).to_have_text("4 of 4")
    expect(page.locator(".log-row.selected")).to_contain_text("step 1000000")


def test_an_invalid_pattern_is_reported_and_the_hits_before_it_are_gone(page: Page, of_ranks: str):
    page.goto(f"/ui/jobs/{of_ranks}/log?q=of+1")
    expect(page.locator(".log-row mark").first).to_be_visible()
    page.get_by_label("Pattern").check()
    page.get_by_label("Search", exact=True).fill("[")
    page.keyboard.press("Enter")

    expect(page.locator("#log-found")).to_contain_text("Pattern: missing ] in '['; use")
    expect(page.locator("mark")).to_have_count(0)
    expect(page.locator("#log-hits li")).to_have_count(0)


def test_long_lines_are_wrapped_and_the_address_says_so(page: Page, long_lines: str):
    page.goto(f"/ui/jobs/{long_lines}/log?line=1500")
    expect(page.locator(".log-row.selected")).to_be_visible()
    assert page.locator("#log").evaluate("log => log.scrollWidth > log.clientWidth")

    page.get_by_role("button", name="Wrap lines").click()
    wait_for(page, "document.querySelector('#log').scrollWidth <= document.querySelector('#log').clientWidth")
    assert "wrap=true" in page.url
    page.reload()

    expect(page.get_by_role("button", name="Wrap lines")).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".log-row.selected")).to_contain_text("line 1500 ")
    assert place_of(page, 1500)
    tall = page.locator(".log-row").evaluate_all("rows => rows.map((row) => row.getBoundingClientRect().height)")
    assert max(tall) > 40
    page.get_by_role("button", name="First").click()
    expect(page.locator(".log-row a").first).to_have_text("1")
    page.set_viewport_size({"width": 390, "height": 800})
    page.locator("#log").focus()
    page.keyboard.press("End")
    expect(page.locator(".log-row a").last).to_have_text("3000")
    wait_for(
        page,
        "Math.abs(document.querySelector('.log-row:last-child').getBoundingClientRect().bottom"
        " - document.getElementById('log').getBoundingClientRect().bottom) < 3",
    )


def test_an_invalid_pattern_is_reported(page: Page, of_ranks: str):
    page.goto(f"/ui/jobs/{of_ranks}/log?q=(&regex=true")

    expect(page.locator("#log-found")).to_contain_text("missing )")


def test_lines_of_one_rank_keep_their_place_while_pages_are_loaded(page: Page, of_ranks: str):
    page.goto(f"/ui/jobs/{of_ranks}/log?rank=3")
    expect(page.locator(".log-row").last).to_contain_text("of 3")

    page.get_by_role("button", name="First").click()
    expect(page.locator(".log-row a").first).to_have_text("10")
    page.get_by_label("Line", exact=True).fill("6010")
    page.keyboard.press("Enter")

    expect(page.locator(".log-row.selected")).to_contain_text("of 3")
    assert place_of(page, int(page.locator(".log-row.selected a").inner_text()))
    shown = rows(page)
    assert all((n - 1) // 3 % 8 == 3 for n in shown)
    assert shown == sorted(shown)


def test_new_lines_are_followed_until_a_user_scrolls_and_what_they_say_is_text(page: Page, site: Site):
    job_id = site.submit_script("talks", TALKS)
    site.wait_for(job_id, "TRAINING")
    page.goto(f"/ui/jobs/{job_id}/log")

    expect(page.locator(".log-row").last).to_contain_text("<img src=x onerror=alert(1)> red")
    before = max(rows(page))
    wait_until(lambda: max(rows(page), default=0) > before + 30, 60)
    page.locator("#log").focus()
    page.keyboard.press("Home")

    expect(page.get_by_role("button", name="Follow")).to_have_attribute("aria-pressed", "false")
    before = count(page)
    wait_until(lambda: count(page) > before + 10, 60)
    assert place_of(page, 1)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_log_has_no_violations(page: Page, million: str, violations: Any, scheme: Any):
    page.emulate_media(color_scheme=scheme)
    page.goto(f"/ui/jobs/{million}/log?line=700000&q=overflow")
    expect(page.locator("#log-hits li").first).to_be_visible()
    expect(page.locator(".log-row.selected")).to_be_visible()

    assert violations(page) == []


def test_the_log_fits_a_narrow_screen(page: Page, million: str):
    page.set_viewport_size({"width": 320, "height": 700})
    page.goto(f"/ui/jobs/{million}/log?line=700000")

    expect(page.locator(".log-row.selected")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
