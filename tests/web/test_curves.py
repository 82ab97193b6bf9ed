"""The curves of a job in a browser: drawn, moving, zoomed, smoothed, as a table and as files."""

import re
from collections.abc import Iterator
from typing import Literal

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.web.site import Site, wait_for

CANARY = "<img src=x onerror=alert(1)>"
# Thirty metrics, of which most are below the first screen; it runs until it is cancelled.
SOURCE = f"""
import time
from trainyard import hooks

run = hooks.init(can_checkpoint=True)
for step in range(1, 5000):
    time.sleep(0.05 if step > 300 else 0.001)
    run.progress(step, 5000, epoch=step / 100, tokens=10 * step)
    many = {{f"part_{{n:02}}": step / (n + 1) for n in range(24)}}
    first = {{"loss": 5 / step, "eval_loss": 6 / step, {CANARY!r}: 1.0, "cpu_percent": 50.0}}
    run.log_metrics({{**first, **many}}, step=step)
    if step == 200:
        with run.checkpoint(step=step, metrics={{"loss": 5 / step}}) as path:
            open(path + "/done", "w").close()
    if run.should_stop():
        break
"""


@pytest.fixture(scope="module")
def job(site: Site) -> Iterator[str]:
    """A job whose curves have some hundred points, and grow."""
    job_id = site.submit_script("moving-curves", SOURCE)
    site.wait_for(job_id, "TRAINING")
    yield job_id
    site.ask("POST", f"/v1/jobs/{job_id}/cancel", {})


@pytest.fixture
def curves(page: Page, job: str) -> Page:
    page.goto(f"/ui/jobs/{job}/curves")
    expect(panel(page, "loss").locator("canvas")).to_be_visible()
    return page


def panel(page: Page, name: str) -> Locator:
    return page.get_by_role("heading", name=name, exact=True).locator("xpath=ancestor::section")


def newest_step(page: Page, name: str = "loss") -> int:
    return int(panel(page, name).locator(".curve-value").inner_text().split("at step ")[1].split()[0])


def test_the_curve_moves(curves: Page) -> None:
    before = newest_step(curves)

    expect(panel(curves, "loss").locator(".curve-value")).not_to_contain_text(f"at step {before}")

    assert newest_step(curves) > before


def test_only_what_is_in_sight_is_asked_for_and_drawn(curves: Page) -> None:
    below = panel(curves, "part_23")

    expect(below.locator("canvas")).to_have_count(0)
    below.scroll_into_view_if_needed()

    expect(below.locator("canvas")).to_be_visible()
    assert curves.evaluate("document.getElementsByTagName('*').length") <= 2000


def test_names_are_text(curves: Page) -> None:
    expect(curves.get_by_role("heading", name=CANARY, exact=True)).to_be_attached()
    expect(curves.locator("main img")).to_have_count(0)


def test_dragging_asks_the_server_for_the_range(curves: Page) -> None:
    box = panel(curves, "loss").locator(".u-over").bounding_box()
    assert box is not None
    with curves.expect_request(lambda request: "from_step=" in request.url and "to_step=" in request.url):
        curves.mouse.move(box["x"] + box["width"] * 0.1, box["y"] + 50)
        curves.mouse.down()
        curves.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + 60, steps=4)
        curves.mouse.up()

    assert "from_step=" in curves.url
    first, last = (int(curves.get_by_label(name).input_value()) for name in ("From step", "To step"))
    assert 0 < first < last
    curves.mouse.move(0, 0)  # no cursor: the value is the last one
    expect(panel(curves, "loss").locator(".curve-value")).to_contain_text(f"at step {last}")
    curves.get_by_role("button", name="Whole run").click()
    expect(panel(curves, "loss").locator(".curve-value")).not_to_contain_text(f"at step {last}")
    assert "from_step=" not in curves.url


def test_back_undoes_a_zoom_and_forward_does_it_again(curves: Page) -> None:
    curves.get_by_label("Log scale").check()
    curves.get_by_label("From step").fill("10")
    curves.get_by_label("To step").fill("60")
    curves.get_by_role("button", name="Show these steps").click()
    expect(panel(curves, "loss").locator(".curve-value")).to_contain_text("at step 60")

    curves.go_back()

    expect(panel(curves, "loss").locator(".curve-value")).not_to_contain_text("at step 60")
    expect(curves.get_by_label("From step")).to_have_value("")
    assert curves.url.endswith("/curves?log=1")
    curves.go_forward()
    expect(panel(curves, "loss").locator(".curve-value")).to_contain_text("at step 60")
    assert curves.get_by_label("To step").input_value() == "60"


def test_cursors_move_together(curves: Page) -> None:
    panel(curves, "loss").locator(".u-over").hover(position={"x": 60, "y": 40})

    value = panel(curves, "loss").locator(".curve-value").inner_text()
    expect(panel(curves, "part_00").locator(".curve-value")).to_contain_text(value.split(" at ")[1].split(" · ")[0])


@pytest.mark.parametrize(
    ("x", "where"), [("epoch", r"at epoch [\d.]+$"), ("time", r"at \d+:\d\d:\d\d"), ("tokens", r"at tokens [\d.,]+$")]
)
def test_curves_have_other_axes(curves: Page, x: str, where: str) -> None:
    curves.get_by_label("Horizontal axis").select_option(x)
    panel(curves, "loss").locator(".u-over").hover()

    expect(panel(curves, "loss").locator(".curve-value")).to_have_text(re.compile(where))


def test_settings_are_in_the_address(curves: Page, job: str) -> None:
    curves.get_by_label("Horizontal axis").select_option("epoch")
    curves.get_by_label("Log scale").check()
    curves.get_by_label("Find a metric").fill("LOSS")

    expect(panel(curves, "part_00")).to_be_hidden()
    assert curves.url.endswith(f"/ui/jobs/{job}/curves?x=epoch&log=1&find=loss")
    curves.reload()
    expect(panel(curves, "eval_loss").locator("canvas")).to_be_visible()
    expect(panel(curves, "part_00")).to_be_hidden()
    assert curves.get_by_label("Log scale").is_checked()


def test_values_as_a_table_a_file_and_a_picture(curves: Page) -> None:
    curves.get_by_role("button", name="Table of loss", exact=True).click()
    rows = panel(curves, "loss").get_by_role("row")
    expect(rows).to_have_count(41)
    expect(rows.nth(1)).to_contain_text("5")
    with curves.expect_download() as saved:
        curves.get_by_role("button", name="CSV of loss", exact=True).click()
    assert saved.value.path().read_text().startswith("metric,step,at,value\nloss,1,")
    with curves.expect_download() as drawn:
        curves.get_by_role("button", name="PNG of loss", exact=True).click()
    assert drawn.value.suggested_filename == "loss.png"
    assert drawn.value.path().read_bytes().startswith(b"\x89PNG")


def test_first_load_asks_little(curves: Page) -> None:
    loaded = curves.evaluate("performance.getEntriesByType('resource').map((each) => each.name)")

    files = [url for url in loaded if "/ui/static/" in url and not url.endswith("icon.svg")]
    assert len(files) <= 6, files  # and the page, and its first curves


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everybody_can_use_it(curves: Page, violations, scheme: Literal["light", "dark"]) -> None:
    curves.emulate_media(color_scheme=scheme)
    curves.get_by_role("button", name="Table of loss", exact=True).click()

    assert violations(curves) == []
    curves.set_viewport_size({"width": 320, "height": 700})
    wait_for(curves, "document.documentElement.scrollWidth === 320")


def test_smoothing_and_marks_are_drawn_and_taken_away_again(curves: Page) -> None:
    """On a part of the run that has its last point, so that nothing else is drawn anew."""
    value = panel(curves, "loss").locator(".curve-value")
    expect(value).to_have_text(re.compile(r"at step (2[6-9]\d|[3-9]\d\d|\d{4,})"))  # the checkpoint is at step 200
    curves.get_by_label("From step").fill("150")
    curves.get_by_label("To step").fill("250")
    curves.get_by_role("button", name="Show these steps").click()
    expect(value).to_contain_text("at step 250")
    marks, smoothing = curves.get_by_label("Checkpoints and attempts"), curves.get_by_label("Smoothing")

    with_marks = drawn(curves)
    marks.uncheck()
    plain = drawn(curves, other_than=with_marks)
    smoothing.fill("0.9")
    smoothed = drawn(curves, other_than=plain)
    assert curves.url.endswith("smooth=0.9&from_step=150&to_step=250")
    expect(curves.locator("[data-smooth]")).to_have_text("0.90")
    smoothing.fill("0")
    assert drawn(curves, other_than=smoothed) == plain
    marks.check()
    drawn(curves, other_than=plain)


def drawn(page: Page, *, other_than: str = "") -> str:
    """The picture of the loss, once it is another one."""
    canvas = panel(page, "loss").locator("canvas")
    for _ in range(50):
        picture: str = canvas.evaluate("canvas => canvas.toDataURL()")
        if picture != other_than:
            return picture
        page.wait_for_timeout(100)
    raise AssertionError("the curve is drawn as before")
