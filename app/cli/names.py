"""What administrators may call the things they make."""

import re

import click

# They become part of broker queue names, where other characters have a meaning.
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")


def checked_name(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    """A click callback."""
    if value is not None and not _NAME.fullmatch(value):
        raise click.BadParameter("use 1 to 63 lower-case letters, digits and dashes, no dash at either end")
    return value
