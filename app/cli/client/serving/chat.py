"""`trainyard chat`: a conversation with a served model, in the terminal."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from app.cli.client.submit import project_option
from app.cli.connection import server
from app.cli.output import printable
from trainyard.client import NO_RETRY, Client, ClientError

Message = dict[str, str]
PATIENCE_SECONDS = 2.0  # without an answer, until the reason is shown


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
                with _reason_shown(service, project) as begun:
                    answer = _answer(client, model, said, given, begun)
                said.append({"role": "assistant", "content": answer})
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


@contextmanager
def _reason_shown(service: str, project: str) -> Iterator[threading.Event]:
    """Until the event is set, why the service does not answer is shown, whenever that changes."""
    begun = threading.Event()
    threading.Thread(target=_show_reason, args=(service, project, begun), daemon=True).start()
    try:
        yield begun
    finally:
        begun.set()


def _show_reason(service: str, project: str, begun: threading.Event) -> None:
    shown = ""
    while not begun.wait(PATIENCE_SECONDS):
        try:
            with server(project) as client:  # the other one is waiting for the answer
                found = client.services.get(service, patience=NO_RETRY)
            reason = found["pending_reason"] or ("" if found["answering"] else "no replica answers yet")
        except (ClientError, click.ClickException):  # a model's id, or a key that may not see services
            reason = "no answer yet"
        if reason and reason != shown and not begun.is_set():
            click.echo(f"waiting for {printable(service)}: {printable(reason)}", err=True)
            shown = reason


def _answer(client: Client, model: str, said: list[Message], fields: dict[str, Any], begun: threading.Event) -> str:
    """Prints the answer as it is made, and returns it. Ctrl-C ends the answer, not the conversation."""
    parts: list[str] = []
    try:
        for chunk in client.services.chat(model, said, **fields):
            begun.set()
            for choice in chunk.get("choices") or ():
                text = (choice.get("delta") or {}).get("content") or ""
                parts.append(text)
                click.echo(printable(text), nl=False)
    except KeyboardInterrupt:
        click.echo(" …", nl=False)
    click.echo()
    return "".join(parts)
