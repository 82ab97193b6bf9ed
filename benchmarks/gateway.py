"""What a gateway adds to an answer, how many streams one core carries, and how much memory open streams need.

    python -m benchmarks.gateway [--pairs 300] [--streams 100] [--seconds 5] [--open 500] [--rounds 3]

A gateway as a process on SQLite, before an engine without a model (`benchmarks/played_engine.py`) behind the real
relay. Requests alternate between the gateway and the relay alone, with a pause after each pair, so that the gateway
also reads services and keys anew. `--streams` streams of 20 tokens per second give its processor time per event: few
enough that processes hardly wait for a core, because events that wait are passed on together, which is cheaper. Memory
is resident, with `--open` streams of one token per second. Every round measures all three. One JSON line on standard
output, a table on standard error.
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.gateway_site import Site, started
from benchmarks.load import post_request
from benchmarks.machine import description

TOKENS_PER_SECOND = 20
PAUSE_SECONDS = 0.02
PATH = "/v1/chat/completions"
_TICKS = os.sysconf("SC_CLK_TCK")

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Times = dict[str, list[float]]  # seconds by way


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=300, help="requests each way in a round")
    parser.add_argument("--streams", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each stream")
    parser.add_argument("--open", type=int, default=500, help="streams while memory is measured")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args(arguments)
    machine = description()
    with tempfile.TemporaryDirectory(prefix="trainyard-gateway-") as folder, ExitStack() as stack:
        figures = asyncio.run(measured(started(Path(folder), stack), given))
    report = {"benchmark": "gateway", **vars(given), **figures, "machine": machine}
    print(table(report), file=sys.stderr)
    print(json.dumps(report))


async def measured(site: Site, given: argparse.Namespace) -> dict[str, Any]:
    await _pairs(site, 20)  # connections, imports
    idle = memory_mb(site.gateway_pid)
    times: Times = {"gateway": [], "relay": []}
    events, memory = [], []
    for _ in range(given.rounds):
        for way, found in (await _pairs(site, given.pairs)).items():
            times[way] += found
        events.append(await _seconds_per_event(site, given))
        memory.append(await _memory_mb(site, given.open))
    added = sorted(ours - bare for ours, bare in zip(times["gateway"], times["relay"], strict=True))
    per_event = statistics.median(events)
    return {
        "relay_ms": _percentiles(times["relay"]),
        "gateway_ms": _percentiles(times["gateway"]),
        "added_ms": _percentiles(added),
        "us_per_event": [round(each * 1e6, 1) for each in events],
        "streams_per_core": int(1 / (per_event * TOKENS_PER_SECOND)),
        "idle_mb": round(idle, 1),
        "open_mb": [round(each, 1) for each in memory],
    }


async def _pairs(site: Site, count: int) -> Times:
    """Seconds of each request, through the gateway and straight to the relay; who is first alternates."""
    request = post_request(PATH, _body("1 0"), {"Authorization": f"Bearer {site.key}"})
    ways = {"gateway": await asyncio.open_connection("127.0.0.1", site.gateway_port), "relay": await _relay(site)}
    times: Times = {way: [] for way in ways}
    for number in range(count):
        for way in sorted(ways, reverse=bool(number % 2)):
            begun = time.perf_counter()
            await _whole(ways[way], request)
            times[way].append(time.perf_counter() - begun)
        await asyncio.sleep(PAUSE_SECONDS)
    for _, writer in ways.values():
        writer.close()
    return times


async def _relay(site: Site) -> Streams:
    reader, writer = await asyncio.open_connection("127.0.0.1", site.relay_port)
    writer.write(f"TRAINYARD/1 {site.relay_token}\n".encode())
    if await reader.readline() != b"OK\n":
        raise RuntimeError("the relay refuses the token of the benchmark")
    return reader, writer


async def _whole(connection: Streams, request: bytes) -> None:
    reader, writer = connection
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    _, _, rest = head.lower().partition(b"content-length: ")
    await reader.readexactly(int(rest.split(b"\r\n", 1)[0]))
    if not head.startswith(b"HTTP/1.1 200 "):
        raise RuntimeError(f"a request of the benchmark failed: {head.decode()}")


async def _seconds_per_event(site: Site, given: argparse.Namespace) -> float:
    """Processor time of the gateway; opening and closing the streams counts, too."""
    tokens = int(given.seconds * TOKENS_PER_SECOND)
    before = _processor_seconds(site.gateway_pid)
    streams = [_read_stream(site, tokens, 1 / TOKENS_PER_SECOND) for _ in range(given.streams)]
    events = sum(await asyncio.gather(*streams))
    await asyncio.sleep(0.1)
    return (_processor_seconds(site.gateway_pid) - before) / events


async def _memory_mb(site: Site, streams: int) -> float:
    """Once all are open and have got a few events."""
    open_streams = [asyncio.create_task(_read_stream(site, 5, 1.0)) for _ in range(streams)]
    await asyncio.sleep(4.0)
    if any(each.done() for each in open_streams):
        raise RuntimeError("a stream has ended early")
    found = memory_mb(site.gateway_pid)
    await asyncio.gather(*open_streams)
    return found


async def _read_stream(site: Site, tokens: int, pause: float) -> int:
    """The events of one stream, the last one included."""
    reader, writer = await asyncio.open_connection("127.0.0.1", site.gateway_port)
    body = _body(f"{tokens} {pause}", stream=True)
    writer.write(post_request(PATH, body, {"Authorization": f"Bearer {site.key}", "Connection": "close"}))
    events, end = 0, b""
    while piece := await reader.read(1 << 16):
        events += piece.count(b"data: ")
        end = (end + piece)[-64:]
    writer.close()
    if b"[DONE]" not in end or events != tokens + 1:
        raise RuntimeError(f"a stream ended after {events} of {tokens + 1} events: {end!r}")
    return events


def _body(wanted: str, **more: Any) -> bytes:
    return json.dumps({"model": "support", "messages": [{"role": "user", "content": wanted}], **more}).encode()


def _processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def memory_mb(pid: int) -> float:
    """The resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def _percentiles(seconds: list[float]) -> dict[str, float]:
    found = sorted(seconds)
    last = len(found) - 1
    return {name: round(found[int(last * part)] * 1e3, 2) for name, part in (("p50", 0.5), ("p99", 0.99))}


def table(report: Mapping[str, Any]) -> str:
    added, events, memory = report["added_ms"], report["us_per_event"], report["open_mb"]
    rows = [
        ("an answer straight from the relay, median", f"{report['relay_ms']['p50']} ms", ""),
        ("added by the gateway, median", f"{added['p50']} ms", "≤ 3 ms"),
        ("added by the gateway, p99", f"{added['p99']} ms", "≤ 10 ms"),
        ("processor time of an event, median", f"{statistics.median(events)} µs", "≤ 100 µs"),
        (f"streams at {TOKENS_PER_SECOND} tokens/s for one core", str(report["streams_per_core"]), "≥ 500"),
        ("memory before streams", f"{report['idle_mb']} MB", ""),
        (f"memory with {report['open']} streams, most", f"{max(memory)} MB", "≤ 80 MB"),
    ]
    lines = [f"| {name} | {figure} | {goal} |" for name, figure, goal in rows]
    return "\n".join(["| | figure | goal |", "|---|---|---|", *lines])


if __name__ == "__main__":
    main(sys.argv[1:])
