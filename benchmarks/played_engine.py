"""An engine without a model, as a process: `python -m benchmarks.played_engine SOCKET` answers at once, or in steps.

The last message of a request says how: events, and the pause before each in seconds, as in "40 0.05".
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

USAGE = {"prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10}
_STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def main(arguments: list[str]) -> None:
    asyncio.run(_serve(arguments[0]))


async def _serve(place: str) -> None:
    server = await asyncio.start_unix_server(_connection, place, backlog=1024)
    async with server:
        await server.serve_forever()


async def _connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer one request after the other until the client closes."""
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            body = json.loads(await reader.readexactly(_length(head)))
            if body.get("stream"):
                await _stream(body, writer)
            else:
                answer = json.dumps(_document("chat.completion", "message", usage=USAGE)).encode()
                head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(answer)
                writer.write(head + answer)
                await writer.drain()
    except (asyncio.IncompleteReadError, OSError):
        pass
    finally:
        writer.close()


async def _stream(body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
    writer.write(_STREAM_HEAD)
    async for event in _events(str(body["messages"][-1]["content"])):
        writer.write(b"%x\r\n%b\r\n" % (len(event), event))
        await writer.drain()
    writer.write(b"0\r\n\r\n")


async def _events(wanted: str) -> AsyncIterator[bytes]:
    count, pause = wanted.split()
    token = b"data: " + json.dumps(_document("chat.completion.chunk", "delta")).encode() + b"\n\n"
    due = asyncio.get_running_loop().time()
    for _ in range(int(count)):
        due += float(pause)
        await asyncio.sleep(due - asyncio.get_running_loop().time())
        yield token
    yield b"data: " + json.dumps({"choices": [], "usage": USAGE}).encode() + b"\n\n"
    yield b"data: [DONE]\n\n"


def _document(kind: str, name: str, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, name: {"role": "assistant", "content": "token"}, "logprobs": None, "finish_reason": None}
    return {"id": "chatcmpl-0", "object": kind, "created": 1, "model": "support", "choices": [choice], **more}


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 0


if __name__ == "__main__":
    main(sys.argv[1:])
