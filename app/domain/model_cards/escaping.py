"""Texts of others within Markdown and YAML: each on one line, and never read as markup."""

import json
import re

# Also what makes a link of a bare address: the colon, the at sign, and the dot after www.
_MARKUP = re.compile(r"[\\`*_{}\[\]<>()#+!|~&$=:@^]|^-|(?<=www)\.", re.IGNORECASE)
_ORDERED = re.compile(r"^(\d+)\.")
_TICKS = re.compile(r"`+")


def one_line(text: str) -> str:
    """The text without control, direction and other invisible characters, and with single spaces."""
    return " ".join("".join(each if each.isprintable() else " " for each in text).split())


def plain(text: str) -> str:
    """Markdown that shows the text."""
    return _ORDERED.sub(r"\1\\.", _MARKUP.sub(r"\\\g<0>", one_line(text)))


def code(text: str) -> str:
    """Markdown that shows the text as code, also within a table."""
    shown = one_line(text).replace("|", "\\|")
    fence = "`" * (1 + max((len(run) for run in _TICKS.findall(shown)), default=0))
    space = " " if len(fence) > 1 else ""
    return f"{fence}{space}{shown}{space}{fence}" if shown else ""


def yaml_text(text: str) -> str:
    """The text as a double-quoted scalar of YAML, which JSON's strings are."""
    return json.dumps(one_line(text), ensure_ascii=False)
