"""What interactive sessions say to the session server in a job's sandbox, and it to them.

A connection begins with one line of JSON, the request, and the server answers with one line: ``{"type": "started"}`` or
``{"type": "refused", "message": …}``. After a request for a port the bytes that follow are those of the port, whose
client sends nothing before the answer. After one for a command they are frames in both directions: a channel (1 byte),
the length of the payload (4 bytes, big endian) and the payload. Channels are numbered as in Kubernetes' remote command
protocol (v5.channel.k8s.io), which carries channel and payload in one WebSocket message; so do ours.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

PROTOCOL = "trainyard.session.v1"  # the WebSocket's subprotocol
PAGE_TICKET = "trainyard.ticket."  # with the ticket, another subprotocol: scripts of pages can set no header
SOCKET = "sessions.sock"  # of the session server, in the run directory

STDIN, STDOUT, STDERR, STATUS, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
CHANNELS = frozenset({STDIN, STDOUT, STDERR, STATUS, RESIZE, CLOSE})
"""STATUS: JSON from the server, the last frame: {"exit_code": 0, "signal": null, "message": ""}. RESIZE: JSON to the
server: {"rows": 24, "columns": 80}. CLOSE: its payload is the channel whose end is reached: that of the input."""

MAX_REQUEST_BYTES = 64 << 10
MAX_PAYLOAD = 64 << 10
_HEAD = struct.Struct(">BI")


class FrameError(ValueError):
    """Bytes that are no frame of this protocol."""


@dataclass(frozen=True)
class Frame:
    channel: int
    payload: bytes


def encode_frame(channel: int, payload: bytes) -> bytes:
    """One frame. Raises FrameError for a payload that is too long."""
    if len(payload) > MAX_PAYLOAD:
        raise FrameError(f"a frame has at most {MAX_PAYLOAD} bytes, this one {len(payload)}")
    return _HEAD.pack(channel, len(payload)) + payload


class FrameDecoder:
    """Decodes the bytes of a stream into frames; keeps an incomplete one."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that ``data`` completes. After a FrameError the stream is useless."""
        self._rest += data
        while len(self._rest) >= _HEAD.size:
            channel, length = _HEAD.unpack_from(self._rest)
            if channel not in CHANNELS or length > MAX_PAYLOAD:
                raise FrameError(f"no frame: channel {channel}, {length} bytes")
            if len(self._rest) < _HEAD.size + length:
                return
            payload = bytes(self._rest[_HEAD.size : _HEAD.size + length])
            del self._rest[: _HEAD.size + length]
            yield Frame(channel, payload)
