"""Options that take names and texts, validated as the API validates them."""

from collections.abc import Callable

import click

from app.domain.names import NAME, NAME_RULE


def checked_name(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    """A click callback that validates a name."""
    if value is not None and not NAME.fullmatch(value):
        raise click.BadParameter(NAME_RULE)
    return value


def checked_text(longest: int) -> Callable[[click.Context, click.Parameter, str | None], str | None]:
    """A click callback that validates a text; text from a shell may contain bytes that are not UTF-8."""

    def check(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
        if value is None:
            return None
        if len(value) > longest:
            raise click.BadParameter(f"use at most {longest} characters")
        if not value.isascii() and value.encode(errors="ignore").decode() != value:
            raise click.BadParameter("contains bytes that are not UTF-8")
        return value

    return check


def pair(text: str) -> tuple[str, str]:
    """(key, value) of a label written KEY=VALUE. Raises BadParameter."""
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise click.BadParameter(f"{text!r} is not a label; write KEY=VALUE")
    return key, value
