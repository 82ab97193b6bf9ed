"""Log lines from a script to a reader of its stream, and what they cost (B10).

    python -m benchmarks.logs [--rounds 3] [--only paced,flood,beside]

A job in a real `trainyard up` prints lines of 55 bytes; a reader follows `GET /v1/jobs/{id}/logs` from the start. It
checks that every number comes once and in order. In each round also the reference, alternating: the same program
writes its lines to a local file.

- ``paced``: 20 000 and 50 000 lines per second, for 8 s; 10 lines per second show what a job and a reader cost anyway.
- ``flood``: two million lines, as fast as they are taken.
- ``beside``: 6 000 lines per second beside computing on every core; the reference is the same job with its lines in
  a file. What counts is the number of steps done.

Processor times are those of the supervisor and of the API while the lines are written and read, per line. One JSON line
on standard output, a table on standard error.
"""

import argparse
import contextlib
import http.client
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks.footprint import PLAIN, Running, all_pids, family, is_supervisor, up
from benchmarks.machine import description

PACED_SECONDS = 8
RATES = (10, 20_000, 50_000)
FLOOD_LINES = 2_000_000
BESIDE_RATE, BESIDE_SECONDS = 6_000, 10
READ_BYTES = 1 << 20
LINGER_SECONDS = 300
PROGRAM = Path(__file__).with_name("logged_lines.py")
GOALS = {
    "flood": "≥ 200 000 lines/s, all",
    "paced 20000": "supervisor ≤ 5 % of a core",
    "beside": "≥ 0.99 of the steps",
}
_NUMBER = re.compile(rb"\nid: 1:(\d+)\n")  # begins with what never varies: a fast search
_NOTICE = re.compile(rb'"line":"(\[trainyard\][^\n]*)"}\n')
_LINE = re.compile(rb'"line":"([^\n]*)"}\n\n$')
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Received:
    """What a reader got: everything after the line "ready", up to the program's result."""

    lines: int = 0
    gaps: int = 0
    notices: list[str] = field(default_factory=list)
    lags: list[float] = field(default_factory=list)
    seconds: float = 0.0
    result: dict[str, float] = field(default_factory=dict)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="paced,flood,beside")
    given = parser.parse_args(arguments)
    machine, folder = description(), Path(tempfile.mkdtemp(prefix="trainyard-logs-"))
    cases = {name: options for name, options in all_cases().items() if name.split()[0] in given.only.split(",")}
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in cases}
    with contextlib.suppress(PermissionError):
        os.nice(-5)  # both sides alike: what else runs on the machine disturbs less
    try:
        (folder / "data.jsonl").write_text('{"text": "a line"}\n')
        (folder / "model").mkdir()
        (folder / "model" / "config.json").write_text("{}")
        with up(folder, PLAIN) as running:
            for number in range(given.rounds):
                for name, options in cases.items():
                    found[name].append(one_round(running, folder, name, options, reference_first=bool(number % 2)))
                    print(f"round {number}, {name}: {found[name][-1]}", file=sys.stderr)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    figures = {name: figures_of(rounds) for name, rounds in found.items()}
    report = {"benchmark": "logs", "rounds": given.rounds, "cases": figures, "machine": machine}
    print(table(figures), file=sys.stderr)
    print(json.dumps(report))


def all_cases() -> dict[str, list[str]]:
    """Name → options of the program."""
    paced = {f"paced {rate}": ["--lines", str(rate * PACED_SECONDS), "--per-second", str(rate)] for rate in RATES}
    beside = ["--compute-seconds", str(BESIDE_SECONDS), "--per-second", str(BESIDE_RATE)]
    return {**paced, "flood": ["--lines", str(FLOOD_LINES)], "beside": beside}


def one_round(
    running: Running, folder: Path, name: str, options: list[str], *, reference_first: bool
) -> dict[str, Any]:
    def reference() -> dict[str, float]:
        to_file = [*options, "--file", "/tmp/lines"]
        return in_trainyard(running, folder, to_file)[0].result if name == "beside" else alone(options, folder)

    before = reference() if reference_first else None
    received, used = in_trainyard(running, folder, options)
    written = int(options[1]) if options[0] == "--lines" else received.lines
    return {
        "written": written,
        "received": received.lines,
        "gaps": received.gaps,
        "notices": received.notices[:3],
        "lines_per_second": round(received.lines / received.seconds),
        "lag_seconds": round(statistics.median(received.lags), 3) if received.lags else 0.0,
        "most_lag_seconds": round(max(received.lags, default=0.0), 3),
        **{f"{who}_us": round(seconds / written * 1e6, 3) for who, seconds in used.items()},
        **{f"{who}_percent": round(seconds / received.seconds * 100, 2) for who, seconds in used.items()},
        "script": received.result,
        "reference": before or reference(),
    }


def alone(options: list[str], folder: Path) -> dict[str, float]:
    """The same program by itself, with its lines in a file."""
    command = [sys.executable, str(PROGRAM), *options, "--file", str(folder / "lines")]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    (folder / "lines").unlink()
    return result_of(said.splitlines()[-1])


def in_trainyard(running: Running, folder: Path, options: list[str]) -> tuple[Received, dict[str, float]]:
    """What a reader of the job's stream received, and processor seconds of supervisor and API meanwhile."""
    script, argv = folder / "lines.py", [*options, "--linger-seconds", str(LINGER_SECONDS)]
    script.write_text(PROGRAM.read_text().replace("parser.parse_args()", f"parser.parse_args({argv!r})"))
    client = running.client()
    job_id = client.submit(document(folder, script)).job_id
    chunks = stream(running, job_id)
    buffered = b""
    while b'"line":"ready"' not in buffered:
        buffered += next(chunks)
    before = processor_seconds(running, job_id)
    received = receive(chunks, buffered)
    after = processor_seconds(running, job_id)
    client.cancel(job_id)
    client.wait(job_id)
    return received, {who: after[who] - before[who] for who in after}


def document(folder: Path, script: Path) -> dict[str, Any]:
    return {
        "name": "lines",
        "training_config": {
            "training_type": "SFT",
            "base_model": {"model_id": str(folder / "model")},
            "framework": {"type": "CUSTOM", "custom_script_path": str(script)},
        },
        "data_config": {"sources": [{"path": str(folder / "data.jsonl"), "format": "jsonl"}]},
        "resource_config": {"gpu_count": 1, "device_type": "cpu"},
    }


def stream(running: Running, job_id: str) -> Iterator[bytes]:
    """The bytes of the job's log stream as they arrive."""
    url = urlsplit((running.data_dir / "run" / "url").read_text().strip())
    connection = http.client.HTTPConnection(str(url.hostname), url.port, timeout=120)
    key = (running.data_dir / "admin.key").read_text().strip()
    headers = {"Authorization": f"Bearer {key}", "Accept": "text/event-stream"}
    connection.request("GET", f"/v1/jobs/{job_id}/logs", headers=headers)
    response = connection.getresponse()
    if response.status != 200:
        sys.exit(f"the stream was refused: {response.status} {response.read()!r}")
    while chunk := response.read1(READ_BYTES):
        yield chunk
    sys.exit("the stream ended before the lines did")


def receive(chunks: Iterator[bytes], rest: bytes) -> Received:
    """Count what comes after "ready" until the program's result."""
    received, newest, began = Received(), 0, 0.0
    while not received.result:
        whole, separator, rest = rest.rpartition(b"\n\n")
        frames = b"\n" + whole + separator
        numbers = [int(number) for number in _NUMBER.findall(frames)]
        received.lines += len(numbers)
        if numbers:
            received.gaps += numbers != list(range(newest + 1, newest + len(numbers) + 1))
            newest = numbers[-1]
            began = began or time.monotonic() if newest > 1 else 0.0
        received.notices += [notice.decode() for notice in _NOTICE.findall(frames)]
        last = found[1] if (found := _LINE.search(frames, max(0, len(frames) - 1000))) else b""
        if last.startswith(b"line "):
            received.lags.append(time.time() - float(last.split()[3]))
        if last.startswith(b"result "):
            received.result = result_of(last.decode().replace('\\"', '"'))
        else:
            rest += next(chunks)
    received.lines -= 2  # "ready" and the result
    received.seconds = time.monotonic() - began
    return received


def result_of(line: str) -> dict[str, float]:
    found: dict[str, float] = json.loads(line.removeprefix("result "))
    return found


def processor_seconds(running: Running, job_id: str) -> dict[str, float]:
    api = family(int((running.data_dir / "run" / "api.pid").read_text()))
    supervisors = [pid for pid in all_pids() if is_supervisor(pid, job_id)]
    return {"supervisor": sum(map(own_seconds, supervisors)), "api": sum(map(own_seconds, api))}


def own_seconds(pid: int) -> float:
    """Without its children: those of a supervisor are the ranks."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / _TICKS


def figures_of(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians; of losses the sums."""
    names = [name for name, value in rounds[0].items() if isinstance(value, int | float)]
    medians = {name: statistics.median(one[name] for one in rounds) for name in names}
    ratio = "steps" if rounds[0]["script"]["steps"] else "wall"
    return {
        **medians,
        "lost": sum(one["written"] - one["received"] for one in rounds),
        "gaps": sum(one["gaps"] for one in rounds),
        "script_wall": round(statistics.median(one["script"]["wall"] for one in rounds), 2),
        "reference_wall": round(statistics.median(one["reference"]["wall"] for one in rounds), 2),
        f"{ratio}_ratio": spread([one["script"][ratio] / one["reference"][ratio] for one in rounds]),
    }


def spread(values: list[float]) -> dict[str, float]:
    found = {"median": statistics.median(values), "min": min(values), "max": max(values)}
    return {name: round(value, 4) for name, value in found.items()}


def table(figures: dict[str, Any]) -> str:
    head = ("case", "lines/s", "lost", "lag p50 / max", "supervisor", "API", "script / to a file", "steps", "goal")
    rows = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for name, f in figures.items():
        steps = f.get("steps_ratio")
        cells = (
            name,
            f"{f['lines_per_second']:.0f}",
            f"{f['lost']}",
            f"{f['lag_seconds']:.2f} / {f['most_lag_seconds']:.2f} s",
            f"{f['supervisor_us']:.2f} µs per line, {f['supervisor_percent']:.1f} % of a core",
            f"{f['api_us']:.2f} µs, {f['api_percent']:.1f} %",
            f"{f['script_wall']:.2f} / {f['reference_wall']:.2f} s",
            f"{steps['median']:.3f} ({steps['min']:.3f}, {steps['max']:.3f})" if steps else "",
            GOALS.get(name, ""),
        )
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


if __name__ == "__main__":
    main(sys.argv[1:])
