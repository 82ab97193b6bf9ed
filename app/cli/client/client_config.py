"""`trainyard client-config`: what clients of other systems need to find this server, as lines for a shell."""

import shlex

import click

from app.cli.client.submit import project_option
from app.cli.connection import address, connect
from app.cli.output import json_option, print_json


@click.group(name="client-config")
def client_config() -> None:
    """Print the environment variables that clients of other systems read."""


@client_config.command()
@project_option
@json_option
def openai(project: str, as_json: bool) -> None:  # noqa: FBT001
    """Print the variables of OpenAI's clients.

    Set them with: eval "$(trainyard client-config openai)"
    """
    _, key = address()
    if not key:
        raise click.ClickException("no API key: set TRAINYARD_API_KEY")
    variables = {"OPENAI_BASE_URL": f"{connect().url}/v1", "OPENAI_API_KEY": key}
    if project:
        variables["OPENAI_PROJECT_ID"] = project
    if as_json:
        print_json(variables)
        return
    for name, value in variables.items():
        click.echo(f"export {name}={shlex.quote(value)}")
