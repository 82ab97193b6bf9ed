"""What administrators may call the things they make."""

import click

from app.domain.names import NAME, NAME_RULE


def checked_name(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    """A click callback."""
    if value is not None and not NAME.fullmatch(value):
        raise click.BadParameter(NAME_RULE)
    return value
