"""The doctor tells which images jobs may use on this machine, and what is missing for them."""

from dataclasses import replace

import pytest

from app.services.operations.diagnosis import machine
from app.services.operations.diagnosis.findings import Level
from app.services.operations.diagnosis.site import Site
from tests.systems.examining import said


@pytest.mark.parametrize(
    ("sources", "lack", "level", "message"),
    [
        ((), "", Level.OK, "jobs may use images of the storage roots"),
        (("ghcr.io",), "", Level.OK, "jobs may use images of ghcr.io, and of the storage roots"),
        ((), "umoci is not installed", Level.SKIPPED, "a node here offers no images: umoci is not installed"),
        (("ghcr.io",), "umoci is not installed", Level.WARNING, "a node here offers no images: umoci is not installed"),
    ],
)
def test_images_that_jobs_may_use_are_told(
    site: Site, monkeypatch: pytest.MonkeyPatch, sources: tuple[str, ...], lack: str, level: Level, message: str
) -> None:
    monkeypatch.setattr(machine, "lack_of_images", lambda _: lack)
    settings = replace(site.settings, images=replace(site.settings.images, sources=sources))

    (finding,) = said(replace(site, settings=settings), "images")

    assert (finding.level, finding.message) == (level, message)
