"""What uploads of files cost the API, against the shortest programs that store the same bytes.

    python -m benchmarks.uploads [--megabytes 64] [--uploads 6] [--rounds 5]

`POST /v1/files`, and the two bare routes of `benchmarks/bare_upload.py`: one that reads the same form by Flask, and one
that writes the body as it arrives. All have gunicorn with the same worker, one process each, on the same disk. The ways
alternate in each round; the median of the rounds' ratios counts. What is compared is the processor time of the servers,
because the clock depends on who else uses the machine. Stored files are deleted after each turn. One JSON line on
standard output, a table on standard error.
"""

import argparse
import json
import os
import random
import shutil
import socket
import string
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.cli.local.command_lines import api_command, child_environment
from app.database.from_settings import open_database
from app.security.permissions import Role
from app.security.secrets import SecretBox
from app.services.access import api_keys
from app.services.operations.bootstrap import prepare
from benchmarks import servers
from benchmarks.load import median
from benchmarks.machine import description
from benchmarks.processor_time import seconds_by_child
from config.settings import Settings, load_settings
from tests.systems.servers import free_port

GOAL = 0.8
ROLES = ("user", "assistant")
MEGABYTE = 10**6
BOUNDARY = "4f8e1c0d9b7a6352e1f0c8d7b6a59483"  # as long as those of the client


@dataclass(frozen=True, kw_only=True)
class Way:
    """One way to store the content, and where it then lies."""

    port: int
    request: bytes
    folder: Path


Turn = dict[str, float]  # processor seconds, and megabytes per second by the clock


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=64, help="of each file")
    parser.add_argument("--uploads", type=int, default=6, help="in a turn")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args(arguments)
    machine = description()
    folder = Path(tempfile.mkdtemp(prefix="trainyard-uploads-"))
    try:
        figures = measured(folder, given)
    finally:
        shutil.rmtree(folder)
    report = {"benchmark": "uploads", **vars(given), **figures, "machine": machine}
    print(table(report), file=sys.stderr)
    print(json.dumps(report))


def measured(folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    content = _content(given.megabytes * MEGABYTE)
    environment = servers.environment(folder, f"sqlite:///{folder}/ours.db", "redis://127.0.0.1:1/0")
    environment["TRAINYARD_API_WORKERS"] = "1"
    settings = prepare(load_settings(environment))
    turns: dict[str, list[Turn]] = {"ours": [], "form": [], "body": []}
    with _serving_ours(settings, environment, content) as ours, _serving_bare(settings, folder, content) as bare:
        ways = {"ours": ours, **bare}
        for way in ways.values():
            _upload(way)  # imports
        for number in range(given.rounds):
            for name in sorted(ways, reverse=bool(number % 2)):
                turns[name].append(_turn(ways[name], len(content), given.uploads))
    return {name: _summary(turns[name], turns["ours"]) for name in turns}


def _summary(turns: list[Turn], ours: list[Turn]) -> dict[str, Any]:
    ratios = [bare["cpu_s_per_gb"] / our["cpu_s_per_gb"] for bare, our in zip(turns, ours, strict=True)]
    rates = [our["mb_per_s"] / bare["mb_per_s"] for bare, our in zip(turns, ours, strict=True)]
    return {
        "cpu_s_per_gb": [round(turn["cpu_s_per_gb"], 2) for turn in turns],
        "mb_per_s": [round(turn["mb_per_s"]) for turn in turns],
        "ratio_cpu": median(ratios),
        "ratio_rate": median(rates),
    }


def _turn(way: Way, size: int, uploads: int) -> Turn:
    before, began = _processor_seconds(), time.perf_counter()
    for _ in range(uploads):
        _upload(way)
    took, used = time.perf_counter() - began, _processor_seconds() - before
    for stored in way.folder.rglob("*"):
        if stored.is_file():
            stored.unlink()
    gigabytes = uploads * size / 1e9
    return {"cpu_s_per_gb": used / gigabytes, "mb_per_s": gigabytes * 1e3 / took}


def _processor_seconds() -> float:
    """Of all servers: those that have nothing to do use none."""
    return sum(seconds_by_child(os.getpid()).values())


def _upload(way: Way) -> None:
    with socket.create_connection(("127.0.0.1", way.port), timeout=120) as connection:
        connection.sendall(way.request)
        answer = connection.recv(65536)
    if not answer.startswith(b"HTTP/1.1 200 "):
        raise RuntimeError(f"an upload of the benchmark failed: {answer.decode()}")


def _content(size: int) -> bytes:
    """Conversations of random words, a thousand of them again and again."""
    draw = random.Random(7)
    words = ["".join(draw.choices(string.ascii_lowercase, k=draw.randint(1, 9))) for _ in range(1000)]
    turns = [[{"role": role, "content": " ".join(draw.choices(words, k=40))} for role in ROLES] for _ in range(1000)]
    lines = b"".join(json.dumps({"messages": each}).encode() + b"\n" for each in turns)
    return (lines * (size // len(lines) + 1))[:size]


def _form(content: bytes) -> bytes:
    named = b'--%b\r\nContent-Disposition: form-data; name="' % BOUNDARY.encode()
    purpose = named + b'purpose"\r\n\r\nfine-tune\r\n'
    file = named + b'file"; filename="train.jsonl"\r\nContent-Type: application/octet-stream\r\n\r\n'
    return purpose + file + content + b"\r\n--%b--\r\n" % BOUNDARY.encode()


def _request(path: str, kind: str, body: bytes, *more: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Type: {kind}", "Connection: close", *more]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}"]).encode() + b"\r\n\r\n" + body


@contextmanager
def _serving_ours(settings: Settings, environment: dict[str, str], content: bytes) -> Iterator[Way]:
    db = open_database(settings.database)
    key = api_keys.create(db, SecretBox(settings.security.secret_key), role=Role.USER, project="default").key
    db.close()
    port = free_port()
    own = child_environment({**servers.plain_environment(), **environment}, settings)
    kind = f"multipart/form-data; boundary={BOUNDARY}"
    request = _request("/v1/files", kind, _form(content), f"Authorization: Bearer {key}")
    with servers.running(api_command(settings, bind=f"127.0.0.1:{port}"), own, port):
        yield Way(port=port, request=request, folder=settings.data.dir / "storage" / "files")


@contextmanager
def _serving_bare(settings: Settings, folder: Path, content: bytes) -> Iterator[dict[str, Way]]:
    port, place = free_port(), folder / "bare"
    place.mkdir()
    form = _request("/form", f"multipart/form-data; boundary={BOUNDARY}", _form(content))
    body = _request("/body", "application/octet-stream", content)
    with servers.bare_route("benchmarks.bare_upload", settings, {"BARE_FOLDER": str(place)}, port):
        yield {"form": Way(port=port, request=form, folder=place), "body": Way(port=port, request=body, folder=place)}


def table(report: dict[str, Any]) -> str:
    named = {"ours": "POST /v1/files", "form": "bare route, the same form", "body": "bare route, the body alone"}
    lines = ["| | processor seconds for 1 GB | share of its processor time | MB/s | share of its rate |"]
    lines.append("|---|---|---|---|---|")
    for name, title in named.items():
        way = report[name]
        cpu, rate = median(way["cpu_s_per_gb"]), median(way["mb_per_s"])
        lines.append(f"| {title} | {cpu} | {way['ratio_cpu']} | {rate} | {way['ratio_rate']} |")
    return "\n".join([*lines, f"goal: shares ≥ {GOAL:g}"])


if __name__ == "__main__":
    main(sys.argv[1:])
