"""People who look at the overview, as their browsers behave: a stream or a poll every five seconds, and the part anew.

    python -m benchmarks.played_viewers PORT COUNT < KEY

Each signs in with the key of the first line of standard input. It prints ``ready`` when all have a page, and continues
until standard input ends; one JSON line says what they received. A process of its own, so that what the viewers
compute delays no client whose answers are timed.
"""

import asyncio
import json
import re
import sys
import time
from collections import Counter
from urllib.parse import urlencode

TOPICS = "jobs,nodes,queue"
POLL_SECONDS, POLLS_BEFORE_STREAM = 5.0, 6  # as in app/web/static/live.js
STREAM_LIMIT = 1 << 20  # of a line


class Viewer:
    """One tab with the overview."""

    def __init__(self, port: int, counts: Counter[str]) -> None:
        self._port, self._counts = port, counts
        self._cookie, self._after, self._told_at, self._pace = "", "", 0.0, 1.0

    async def sign_in(self, key: str) -> None:
        head, _ = await self._ask("POST", "/ui/login", urlencode({"key": key}))
        found = re.search(r"set-cookie: ([^;\r\n]+)", head, re.IGNORECASE)
        if found is None:
            sys.exit(f"a viewer cannot sign in: {head.splitlines()[0]}")
        self._cookie = found[1]
        await self._ask("GET", "/ui/")

    async def look(self) -> None:
        """Until it is cancelled."""
        while True:
            if not await self._follow():
                for _ in range(POLLS_BEFORE_STREAM):
                    await self._poll()
                    await asyncio.sleep(max(POLL_SECONDS, self._pace))

    async def _follow(self) -> bool:
        """Read the stream to its end; whether there was one."""
        reader, writer = await self._send("GET", f"/ui/live?{self._query()}")
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            if " 200 " not in head.split("\r\n", 1)[0] or "event-stream" not in head.lower():
                self._counts["no_slot"] += 1
                return False
            self._counts["streams"] += 1
            while line := await reader.readline():
                if line.startswith(b"data:") and b"changed" in line:
                    self._counts["events"] += 1
                    await self._take(json.loads(line[5:]))
        finally:
            writer.close()
        return True

    async def _poll(self) -> None:
        self._counts["polls"] += 1
        head, body = await self._ask("GET", f"/ui/live/marks?{self._query()}")
        if " 200 " in head.split("\r\n", 1)[0]:
            await self._take(json.loads(body))
        else:
            self._counts["refused"] += 1

    async def _take(self, answer: dict[str, object]) -> None:
        self._after, self._pace = str(answer["id"]), float(str(answer.get("pace", 1.0)))
        if answer["changed"]:
            await asyncio.sleep(max(0.0, self._told_at + self._pace + 0.1 - time.monotonic()))
            self._told_at = time.monotonic()
            self._counts["parts"] += 1
            await self._ask("GET", "/ui/overview/part")

    def _query(self) -> str:
        return urlencode({"topic": TOPICS, **({"after": self._after} if self._after else {})})

    async def _ask(self, method: str, path: str, body: str = "") -> tuple[str, str]:
        reader, writer = await self._send(method, path, body)
        try:
            head, _, content = (await reader.read()).partition(b"\r\n\r\n")
        finally:
            writer.close()
        self._counts["answers"] += 1
        if b"transfer-encoding: chunked" in head.lower():
            content = b"".join(content.split(b"\r\n")[1::2])
        return head.decode("latin-1"), content.decode()

    async def _send(self, method: str, path: str, body: str = "") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port, limit=STREAM_LIMIT)
        host = f"127.0.0.1:{self._port}"
        fields = {"Host": host, "Connection": "close", "Cookie": self._cookie, "X-Background": "true"}
        if method == "POST":
            form = {"Origin": f"http://{host}", "Content-Type": "application/x-www-form-urlencoded"}
            fields |= {**form, "Content-Length": str(len(body))}
        elif path != "/ui/":
            fields["HX-Request"] = "true"
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items() if value)]
        writer.write("\r\n".join([*lines, "", body]).encode())
        await writer.drain()
        return reader, writer


async def main(port: int, count: int) -> None:
    counts: Counter[str] = Counter()
    viewers = [Viewer(port, counts) for _ in range(count)]
    key = sys.stdin.readline().strip()
    for viewer in viewers:
        await viewer.sign_in(key)
    print("ready", flush=True)
    looking = [asyncio.create_task(viewer.look()) for viewer in viewers]
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    for task in looking:
        task.cancel()
    ends = await asyncio.gather(*looking, return_exceptions=True)
    counts["failed"] = sum(not isinstance(end, asyncio.CancelledError) for end in ends)
    print(json.dumps(counts), flush=True)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
