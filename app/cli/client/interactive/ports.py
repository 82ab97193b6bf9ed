"""`trainyard ports`, and the address of a port for the browser."""

import http.client
from collections.abc import Mapping
from urllib.parse import urlsplit

import click

from app.cli.connection import server
from app.cli.handles import job_argument, job_id_of
from app.cli.output import json_option, print_json, print_table
from trainyard.client import Client

_SECONDS = 10.0
_MOST_BYTES = 4096
_LOOPBACK, _LOCALHOST = "127.0.0.1", ".localhost"


@click.command()
@job_argument
@json_option
def ports(*, handle: str, as_json: bool) -> None:
    """List the ports of JOB, and where they are served."""
    with server() as client:
        job_id = job_id_of(client, handle)
        found = list(client.ports(job_id))
    if as_json:
        print_json({"ports": found})
        return
    of_roles = any(port.get("role") for port in found)
    columns = ("name", "port", *(("role",) if of_roles else ()), "protocol", "address")
    rows = (_row(port, of_roles=of_roles) for port in found)
    print_table(columns, rows, empty=f"{job_id} names no ports")


def _row(port: Mapping[str, object], *, of_roles: bool) -> tuple[object, ...]:
    role = f"{port['role']} {port['index']}" if port.get("role") else ""
    return port["name"], port["port"], *((role,) if of_roles else ()), port["protocol"], port.get("url") or ""


def address_of_port(client: Client, job_id: str, name: str) -> str:
    """An address for a browser, which has a token for this port and expires."""
    return str(client.port_url(job_id, name)["url"])


def port_answer(url: str, key: str) -> tuple[int, str]:
    """Status and beginning of what a port answers to its user. Raises OSError.

    Browsers know names below localhost as this machine; resolvers need not.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    secure = parts.scheme == "https"
    connects = http.client.HTTPSConnection if secure else http.client.HTTPConnection
    connection = connects(_LOOPBACK if host.endswith(_LOCALHOST) else host, parts.port, timeout=_SECONDS)
    try:
        connection.request("GET", parts.path or "/", headers={"Host": parts.netloc, "Authorization": f"Bearer {key}"})
        answer = connection.getresponse()
        return answer.status, answer.read(_MOST_BYTES).decode(errors="replace")
    except http.client.HTTPException as error:
        raise OSError(f"it does not answer by HTTP: {error!r}") from error
    finally:
        connection.close()
