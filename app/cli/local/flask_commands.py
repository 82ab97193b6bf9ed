"""Flask's own commands, bound to the application."""

import click
from flask.cli import ScriptInfo, routes_command, shell_command

from app.factory import from_environment


def _of_our_app(command: click.Command) -> click.Command:
    def invoke(ctx: click.Context) -> object:
        ctx.obj = ScriptInfo(create_app=from_environment)
        return click.Command.invoke(command, ctx)

    command.invoke = invoke  # type: ignore[method-assign]
    return command


routes = _of_our_app(routes_command)
shell = _of_our_app(shell_command)
