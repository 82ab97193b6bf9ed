"""Probes 36 to 38, 46 to 54: settings of the kernel, what it says of itself, and calls that have been ways into it."""

import ctypes
import functools
import os
import platform
import struct
from collections.abc import Callable
from pathlib import Path

from tests.sandbox.probes.probing import Blocked, Targets, probe, tried
from tests.sandbox.probes.system_calls import call, checked, libc

SETTINGS = (
    *("kernel/core_pattern", "kernel/modprobe", "kernel/panic", "kernel/hostname"),
    *("vm/overcommit_memory", "net/ipv4/ip_forward"),
)
_READ_ALL = 3  # syslog(2)
_SEARCH, _READ = 10, 11  # keyctl(2)
_USER_KEYRING, _PROCESS_KEYRING = -4, -2
_USER_MODE_ONLY = 1  # userfaultfd(2)
_ADDR_NO_RANDOMIZE = 0x40000


@probe(36, "write settings of the kernel")
def settings(targets: Targets) -> str:
    return tried({name: functools.partial(_written_back, Path("/proc/sys", name)) for name in SETTINGS})


def _written_back(path: Path) -> str:
    path.write_bytes(path.read_bytes())
    return "written"


@probe(37, "open /proc/sysrq-trigger")
def sysrq(targets: Targets) -> str:
    os.close(os.open("/proc/sysrq-trigger", os.O_WRONLY))
    return "opened"


@probe(38, "read what the kernel says of itself")
def information(targets: Targets) -> str:
    files = ("/proc/kcore", "/proc/kmsg", "/dev/kmsg", "/proc/config.gz", "/proc/cmdline")
    attempts: dict[str, Callable[[], object]] = {path: functools.partial(_begun, path) for path in files}
    return tried({**attempts, "addresses": _addresses, "log": _kernel_log})


def _begun(path: str) -> str:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    found = os.read(descriptor, 8192)
    os.close(descriptor)
    if not found:
        raise Blocked("empty")
    return f"{len(found)} bytes"


def _addresses() -> str:
    with Path("/proc/kallsyms").open() as file:
        found = {file.readline().split(" ")[0] for _ in range(20)}
    if not any(int(address or "0", 16) for address in found):
        raise Blocked("zeroed")
    return "addresses"


def _kernel_log() -> str:
    return f"{checked(libc.klogctl(_READ_ALL, ctypes.create_string_buffer(1024), 1024))} bytes"


@probe(46, "use io_uring")
def io_uring(targets: Targets) -> str:
    os.close(call("io_uring_setup", 1, ctypes.create_string_buffer(120)))
    return "made"


@probe(47, "use bpf()")
def bpf(targets: Targets) -> str:
    array = ctypes.create_string_buffer(struct.pack("=IIII", 2, 4, 4, 1), 72)
    os.close(call("bpf", 0, array, 72))
    return "a map"


@probe(48, "use userfaultfd")
def userfaultfd(targets: Targets) -> str:
    os.close(call("userfaultfd", os.O_CLOEXEC | _USER_MODE_ONLY))
    return "made"


@probe(49, "use perf_event_open")
def performance_events(targets: Targets) -> str:
    counter = ctypes.create_string_buffer(struct.pack("=IIQ", 1, 112, 0), 112)  # time on the processor
    return tried(
        {
            "of this process": lambda: call("perf_event_open", counter, 0, -1, -1, 0),
            "of a processor": lambda: call("perf_event_open", counter, -1, 0, -1, 0),
        }
    )


@probe(50, "read a key of the machine's user")
def other_key(targets: Targets) -> str:
    key = call("keyctl", _SEARCH, _USER_KEYRING, b"user", targets.key_name.encode(), 0)
    content = ctypes.create_string_buffer(64)
    return f"{call('keyctl', _READ, key, content, 64)} bytes"


@probe(51, "keep keys in the kernel")
def own_key(targets: Targets) -> str:
    return f"key {call('add_key', b'user', b'probe', b'content', 7, _PROCESS_KEYRING)}"


@probe(52, "open shared memory and message queues of the machine")
def shared_memory(targets: Targets) -> str:
    return tried(
        {
            "shared memory": lambda: checked(libc.shmget(targets.shared_memory_key, 0, 0)),
            "queue": lambda: os.close(call("mq_open", targets.queue.encode(), os.O_RDONLY, 0, ctypes.c_void_p())),
        }
    )


@probe(53, "read the machine's /dev/shm")
def shared_memory_files(targets: Targets) -> str:
    return f"{len(Path(targets.shared_memory_file).read_bytes())} bytes"


@probe(54, "use modify_ldt and personality")
def rare_calls(targets: Targets) -> str:
    attempts: dict[str, Callable[[], object]] = {"personality": lambda: checked(libc.personality(_ADDR_NO_RANDOMIZE))}
    if platform.machine() == "x86_64":
        entry = ctypes.create_string_buffer(struct.pack("=IIII", 0, 0, 0, 0x28), 16)  # an empty one
        attempts["modify_ldt"] = lambda: call("modify_ldt", 1, entry, 16)
    return tried(attempts)
