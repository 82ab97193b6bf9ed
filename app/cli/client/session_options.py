"""`--port NAME=8080` and `--on-failure keep:30m` of commands that submit jobs."""

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])
_PORT = re.compile(r"(?P<name>[a-z0-9]+(-[a-z0-9]+)*)=(?P<port>[0-9]{1,5})(/(?P<protocol>http|tcp))?", re.ASCII)
_KEEP = re.compile(r"keep:(?P<amount>[0-9]{1,6})(?P<unit>[smhd])", re.ASCII)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def _ports(_context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> list[dict[str, Any]]:
    found = []
    for value in values:
        parts = _PORT.fullmatch(value)
        if parts is None:
            raise click.BadParameter(f"{value!r:.100} is no port; write NAME=8080, or NAME=5432/tcp")
        port = {"name": parts["name"], "port": int(parts["port"])}
        found.append({**port, **({"protocol": parts["protocol"]} if parts["protocol"] else {})})
    return found


def _keep_seconds(_context: click.Context, _parameter: click.Parameter, value: str) -> int | None:
    if not value:
        return None
    if value == "end":
        return 0
    parts = _KEEP.fullmatch(value)
    if parts is None:
        raise click.BadParameter(f"{value!r:.100} is not known; write keep:30m (s, m, h or d), or end")
    return int(parts["amount"]) * _SECONDS[parts["unit"]]


def interactive_options(command: Command) -> Command:
    """The options, as ``ports`` and ``keep_seconds``."""
    command = click.option(
        "--on-failure",
        "keep_seconds",
        default="",
        callback=_keep_seconds,
        metavar="keep:30m",
        help="When a script fails, keep its sandbox and devices for this time; end: do not.",
    )(command)
    return click.option(
        "--port",
        "ports",
        multiple=True,
        callback=_ports,
        metavar="NAME=8080",
        help="A port on which the job's processes listen, for browsers and port-forward; /tcp after it; repeatable.",
    )(command)


def set_interactive(document: dict[str, Any], *, ports: list[dict[str, Any]], keep_seconds: int | None) -> None:
    """Add what the options say to the document. A port of the same name takes the place of the document's."""
    if not ports and keep_seconds is None:
        return
    section = document.get("interactive_config")
    section = dict(section) if isinstance(section, Mapping) else {}
    if ports:
        names = {port["name"] for port in ports}
        listed = section.get("ports")
        kept = [each for each in listed if not _is_named(each, names)] if isinstance(listed, list) else []
        section["ports"] = [*kept, *ports]
    if keep_seconds is not None:
        section["keep_on_failure_seconds"] = keep_seconds
    document["interactive_config"] = section


def _is_named(port: object, names: set[Any]) -> bool:
    return isinstance(port, Mapping) and port.get("name") in names
