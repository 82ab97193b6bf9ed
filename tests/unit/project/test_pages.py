"""The pages of docs/: their links lead somewhere, the index names each of them, and none is too long to be read."""

import os
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "examples" / "README.md"]
PAGES += sorted((ROOT / "docs").rglob("*.md"))
SECTIONS = ("tutorials", "how-to", "reference", "explanation")
_FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s]+)\)")


@cache
def headings(page: Path) -> set[str]:
    """The anchors of a page, as GitHub makes them, and those that it sets itself."""
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    found = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    made = {re.sub(r"[^\w\- ]", "", re.sub(r"\]\([^)]*\)", "", title).lower()).replace(" ", "-") for title in found}
    return made | set(re.findall(r'<a id="([^"]+)">', text))


def is_broken(page: Path, link: str) -> bool:
    name, _, anchor = link.partition("#")
    if name.startswith(("http:", "https:")):
        return False
    target = page if not name else Path(os.path.normpath(page.parent / name))
    return not target.exists() or bool(anchor and anchor not in headings(target))


def test_every_link_leads_somewhere() -> None:
    links = [
        (page, link) for page in PAGES for link in _LINK.findall(_FENCED.sub("", page.read_text(encoding="utf-8")))
    ]

    assert links != []
    assert [f"{page.relative_to(ROOT)}: {link}" for page, link in links if is_broken(page, link)] == []


@pytest.mark.parametrize("section", SECTIONS)
def test_the_index_names_every_page(section: str) -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    pages = sorted(path.name for path in (ROOT / "docs" / section).glob("*.md"))

    assert pages != []
    assert [name for name in pages if f"({section}/{name})" not in index] == []


# All but the lists of every field and every command, which are looked up and not read.
READ = [page for page in PAGES if page.parent.name in SECTIONS and page.name not in ("compatibility.md", "cli.md")]


def test_pages_are_short_enough_to_be_read_in_one_go() -> None:
    lines = {str(page.relative_to(ROOT)): len(page.read_text(encoding="utf-8").splitlines()) for page in READ}

    assert lines != {}
    assert {page: count for page, count in lines.items() if count > 300} == {}


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


# Not the records of their time.
CURRENT = [page for page in PAGES if "decisions" not in page.parts and not page.name[0].isdigit()]
_NAMED = re.compile(r"`((?:app|config|tasks|trainyard|workers|tests|scripts)/[\w/.-]*(?:\.py|/))`")


def test_every_module_and_folder_that_is_named_exists() -> None:
    named = [(page, name) for page in CURRENT for name in _NAMED.findall(page.read_text(encoding="utf-8"))]

    assert named != []
    assert [f"{page.relative_to(ROOT)}: {name}" for page, name in named if not (ROOT / name).exists()] == []
