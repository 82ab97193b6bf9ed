"""Words that our texts do not use, because the field has others that every reader knows and can search for.

The glossary in docs/architecture.md has the terms. Names on the wire, in the database and in settings stay as they are:
in Markdown they stand in backticks, which are not searched, nor are code blocks and generated parts.
"""

import io
import re
import tokenize
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[3]
# Files and folders that are searched. A clean-up of another one adds it here.
ROOTS = (
    "README.md",
    "CONTRIBUTING.md",
    "docs",
    "scripts",
    "examples",
    "app",
    "config",
    "benchmarks",
    "simulation",
    "tasks",
    "tests",
    "trainyard",
    "workers",
)
# Records of their time, which are never edited: decisions, measured benchmarks, and migrations. This file has the list.
# Libraries of others are theirs.
EXCLUDED = re.compile(
    r"docs/(decisions/|benchmarks/(\d{4}-\d\d-\d\d|reliability))|app/migrations/versions/|tests/unit/project/test_words"
    r"|app/web/static/vendor/"
)


class Banned(NamedTuple):
    """``pattern`` is a regular expression for whole words, in any case."""

    pattern: str
    use: str
    reason: str


BANNED = (
    Banned(r"wish(es|ed)?", "control request, or request", "what a user asks of a job is a request"),
    Banned(r"seats?", "leader election, leadership", "one coordinator is elected to plan"),
    Banned(r"whoever|whomever", "the component or the user that is meant", "a component is not a person"),
    Banned(r"(some|any|no)body", "the component or the user that is meant", "a component is not a person"),
    Banned(r"kept and told|nothing comes of", "accepted but ignored", "that is how field validation calls it"),
    Banned(
        r"looks(?! like)|(an?|one|each|every|the|this|first|last|next|another) look",
        "preflight, inspection, poll, pass",
        "each of them has a name",
    ),
    Banned(
        r"(?<!assistant )(?<!assistant's )(?<!all )turns|(whose|its|their) turn",
        "serving order, converts, disables",
        "only conversations have turns",
    ),
    Banned(r"told", "reported, returned, notified, configured", "programs return values and send messages"),
    Banned(r"obey(s|ed)?|heed(s|ed)?", "apply, follow", "control requests are applied"),
    Banned(r"learnt", "trained, learned", "one spelling"),
    Banned(r"goes on|going on|go on", "continues, resumes", "a job resumes"),
)
ANY = re.compile("|".join(rf"\b(?:{banned.pattern})\b" for banned in BANNED), re.IGNORECASE)
_NOT_PROSE = re.compile(
    r"<!-- generated: .*?<!-- end -->|^```.*?^```|`[^`\n]*`|\]\([^)\n]*\)", re.DOTALL | re.MULTILINE
)


def prose_of_markdown(text: str) -> Iterator[tuple[int, str]]:
    """(number, line) without code, generated parts and the targets of links."""
    blank = _NOT_PROSE.sub(lambda match: "\n" * match[0].count("\n"), text)
    yield from enumerate(blank.split("\n"), start=1)


def prose_of_python(text: str) -> Iterator[tuple[int, str]]:
    """(number, line) of docstrings, comments and messages."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.STRING, tokenize.COMMENT):
            yield from enumerate(re.sub(r"``?[^`\n]*``?", "", token.string).split("\n"), start=token.start[0])


_TEXT_OF_SCRIPTS = re.compile(r"//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|`(?:\\.|[^`\\])*`")


def prose_of_scripts(text: str) -> Iterator[tuple[int, str]]:
    """(number, line) of comments and messages of JavaScript."""
    for found in _TEXT_OF_SCRIPTS.finditer(text):
        yield from enumerate(found[0].split("\n"), start=1 + text.count("\n", 0, found.start()))


def prose_of_templates(text: str) -> Iterator[tuple[int, str]]:
    yield from enumerate(text.split("\n"), start=1)


PROSE: dict[str, Callable[[str], Iterator[tuple[int, str]]]] = {
    ".md": prose_of_markdown,
    ".py": prose_of_python,
    ".js": prose_of_scripts,
    ".html": prose_of_templates,
}


@cache
def texts(root: str) -> list[Path]:
    path = ROOT / root
    found = [path] if path.is_file() else sorted(each for suffix in PROSE for each in path.rglob(f"*{suffix}"))
    return [each for each in found if not EXCLUDED.match(each.relative_to(ROOT).as_posix())]


@cache
def suspects_of(path: Path) -> list[tuple[int, str]]:
    """The lines that some banned word fits: a file is searched once for all of them."""
    text = path.read_text(encoding="utf-8")
    if not ANY.search(text):  # dividing a file into tokens takes a hundred times longer
        return []
    return [(number, line) for number, line in PROSE[path.suffix](text) if ANY.search(line)]


def lines_with(pattern: str, path: Path) -> list[str]:
    words = re.compile(rf"\b(?:{pattern})\b", re.IGNORECASE)
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}" for number, line in suspects_of(path) if words.search(line)
    ]


@pytest.mark.parametrize("root", ROOTS)
def test_no_text_uses_a_banned_word(root: str) -> None:
    found = [
        f"{line}\n    use {banned.use}: {banned.reason}"
        for banned in BANNED
        for path in texts(root)
        for line in lines_with(banned.pattern, path)
    ]

    assert found == [], "\n".join(found)


@pytest.mark.parametrize("root", ROOTS)
def test_every_root_has_texts(root: str) -> None:
    assert texts(root) != []


def test_code_and_names_on_the_wire_are_not_searched() -> None:
    page = "A wish.\n```sh\nwish\n```\nThe field `wish`, [a page](wish.md).\n"
    page += "<!-- generated: w -->\nwish\n<!-- end -->\nseats"

    found = [(number, line) for number, line in prose_of_markdown(page) if re.search("wish|seats", line)]

    assert found == [(1, "A wish."), (9, "seats")]


def test_docstrings_comments_and_messages_are_searched_and_names_are_not() -> None:
    code = '"""A wish.\n\nOf ``wish``.\n"""\nwish = 1  # a seat\nraise ValueError("told")\n'

    assert [line for _, line in prose_of_python(code) if re.search("wish|seat|told", line)] == [
        '"""A wish.',
        "# a seat",
        '"told"',
    ]


def test_comments_and_messages_of_scripts_are_searched_and_names_are_not() -> None:
    script = 'const told = new Map(); // a wish\nsay("nobody // here");\nsay(`a\nseat`);\n'

    assert [*prose_of_scripts(script)] == [(1, "// a wish"), (2, '"nobody // here"'), (3, "`a"), (4, "seat`")]
