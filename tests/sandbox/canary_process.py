"""A process of the machine that no job may reach, with secrets in its environment and in the kernel, and services.

Arguments: the marker of what is secret, its user, and the places as JSON; it says `ready` when all is there.
"""

import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import sys
from pathlib import Path
from typing import Any

from tests.sandbox.probes.system_calls import call, checked, libc

_PR_SET_DUMPABLE, _IPC_CREAT, _IPC_RMID = 4, 0o1000, 0
_USER_KEYRING, _REVOKE = -4, 3


def main() -> None:
    marker, uid, places = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit())
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)  # as if it had been started by this user
    with contextlib.ExitStack() as stack:
        keep_in_kernel(stack, marker, places)
        shared = Path(places["shared_memory_file"])
        shared.touch(mode=0o600, exist_ok=False)
        stack.callback(shared.unlink)
        shared.write_text(marker)
        serve(stack, places)


def keep_in_kernel(stack: contextlib.ExitStack, marker: str, places: dict[str, Any]) -> None:
    """A segment, a queue and a key, which outlive the process unless it removes them."""
    segment = checked(libc.shmget(places["shared_memory_key"], 4096, _IPC_CREAT | 0o600))
    stack.callback(libc.shmctl, segment, _IPC_RMID, None)
    name = places["queue"].encode()
    call("mq_open", name, os.O_CREAT | os.O_RDWR, 0o600, ctypes.c_void_p())
    stack.callback(libc.mq_unlink, b"/" + name)
    key = call("add_key", b"user", places["key_name"].encode(), marker.encode(), len(marker), _USER_KEYRING)
    stack.callback(call, "keyctl", _REVOKE, key)


def serve(stack: contextlib.ExitStack, places: dict[str, Any]) -> None:
    """Answer everything that connects, until a signal."""
    resolver = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    resolver.bind(("127.0.0.1", places["resolver_port"]))
    listeners = [stack.enter_context(socket.create_server(("127.0.0.1", places["service_port"])))]
    for address in (f"\0{places['abstract_socket']}", places["path_socket"]):
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(address)
        listener.listen()
        listeners.append(listener)
    print("ready", flush=True)  # noqa: T201 – to the test
    while True:
        ready, _, _ = select.select([resolver, *listeners], [], [])
        for source in ready:
            with contextlib.suppress(OSError):
                if source is resolver:
                    said, address = resolver.recvfrom(512)
                    resolver.sendto(said, address)
                else:
                    connection, _ = source.accept()
                    with connection:
                        connection.sendall(b"canary")


if __name__ == "__main__":
    main()
