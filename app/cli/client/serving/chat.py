"""`trainyard chat`: a conversation with a served model, in the terminal."""

import sys
from collections.abc import Iterator
from typing import Any

import click

from app.cli.client.connection import server
from app.cli.client.submit import project_option
from app.cli.output import printable
from trainyard.client import Client, ClientError

Message = dict[str, str]


@click.command()
@click.argument("service")
@click.option("--adapter", default="", help="A job whose adapter answers, or JOB/CHECKPOINT.")
@click.option("-m", "--message", "messages", multiple=True, help="Say this instead of reading lines; repeatable.")
@click.option("--system", default="", help="What the model should know before the first message.")
@click.option("--max-tokens", type=click.IntRange(min=1), help="Of each answer.")
@click.option("--temperature", type=click.FloatRange(0.0, 2.0), help="0: the likeliest answer.")
@click.option("--seed", type=int, help="Equal seeds give equal answers.")
@project_option
def chat(service: str, adapter: str, messages: tuple[str, ...], system: str, project: str, **fields: Any) -> None:
    """Talk to SERVICE, or to the model of any id that requests may name. An empty line or Ctrl-D ends it."""
    model = f"{service}/{adapter}" if adapter else service
    given = {name: value for name, value in fields.items() if value is not None}
    said: list[Message] = [{"role": "system", "content": system}] if system else []
    with server(project) as client:
        for text in messages or _lines():
            said.append({"role": "user", "content": text})
            try:
                said.append({"role": "assistant", "content": _answer(client, model, said, given)})
            except ClientError as error:
                if messages or not sys.stdin.isatty():
                    raise
                said.pop()  # the conversation continues without what was not answered
                click.echo(f"Error: {error}", err=True)


def _lines() -> Iterator[str]:
    """What the user types, until an empty line or the end; without a terminal, all of the input is one message."""
    if not sys.stdin.isatty():
        yield sys.stdin.read().strip()
        return
    while True:
        try:
            text = input("> ").strip()
        except (EOFError, KeyboardInterrupt):
            click.echo()
            return
        if not text:
            return
        yield text


def _answer(client: Client, model: str, said: list[Message], fields: dict[str, Any]) -> str:
    """Prints the answer as it is made, and returns it. Ctrl-C ends the answer, not the conversation."""
    parts: list[str] = []
    try:
        for chunk in client.services.chat(model, said, **fields):
            for choice in chunk.get("choices") or ():
                text = (choice.get("delta") or {}).get("content") or ""
                parts.append(text)
                click.echo(printable(text), nl=False)
    except KeyboardInterrupt:
        click.echo(" …", nl=False)
    click.echo()
    return "".join(parts)
