"""What a page loads at a first visit: its requests, and how many bytes they take as they are sent."""

from typing import cast

from playwright.sync_api import Page

from tests.web.site import wait_for

# Pages with parts that follow changes load a module by a call of their own.
COMPLETE = """!document.querySelector("[data-live]") || !document.getElementById("live-state")
    || performance.getEntriesByType("resource").some(({name}) => name.endsWith("/live.js"))"""
SIZES = """() => {
    const icon = document.querySelector("link[rel=icon]").href; // which has no entry, and takes half a kilobyte
    const entries = ["navigation", "resource"].flatMap((type) => performance.getEntriesByType(type));
    return {[icon]: 512, ...Object.fromEntries(entries.map(({name, transferSize}) => [name, transferSize]))};
}"""
# A stream of changes is no part of the first load, nor are figures of sweeps, which browsers load lazily.
LATER = ("/ui/live?", "/ui/live/marks?", "/figures/")


def forget_what_was_loaded(page: Page) -> None:
    """From now on every page of this tab is a first visit."""
    session = page.context.new_cdp_session(page)
    session.send("Network.enable")
    session.send("Network.setCacheDisabled", {"cacheDisabled": True})


def loads(page: Page) -> dict[str, int]:
    """URL → bytes, once the page is complete."""
    wait_for(page, COMPLETE)
    sizes = cast("dict[str, int]", page.evaluate(SIZES))
    found = {url: size for url, size in sizes.items() if not any(part in url for part in LATER)}
    assert min(found.values()) > 0, f"from the cache of the browser: {found}"
    return found
