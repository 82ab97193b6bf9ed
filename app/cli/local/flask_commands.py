"""Flask's own commands, bound to the application."""

from typing import Any

import click

from app.cli.choice import SuggestingChoice
from app.host.imports import uncollected_imports


@click.command()
@click.option(
    "--sort",
    "-s",
    type=SuggestingChoice(("endpoint", "methods", "domain", "rule", "match")),
    default="endpoint",
    help="Sort by this; match is the order in which Flask tries the routes.",
)
@click.option("--all-methods", is_flag=True, help="Show HEAD and OPTIONS methods as well.")
def routes(**options: Any) -> None:
    """Show every URL of the API."""
    from flask.cli import routes_command

    _run(routes_command, **options)


@click.command()
def python() -> None:
    """Open Python with the application loaded, as `flask shell` does."""
    from flask.cli import shell_command

    _run(shell_command)


def _run(command: click.Command, **options: Any) -> None:
    with uncollected_imports():
        from flask.cli import ScriptInfo

        from app.factory import from_environment

    ctx = click.get_current_context()
    ctx.obj = ScriptInfo(create_app=from_environment)
    ctx.invoke(command, **options)
