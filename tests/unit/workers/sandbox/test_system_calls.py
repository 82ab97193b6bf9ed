"""Which system calls a script can make: none by which others escaped from containers, and all that training needs."""

import errno
import json
import signal

import pyseccomp
import pytest

from app.host.bubblewrap import lack_of_sandbox
from app.host.system_call_filter import DENIED, UNKNOWN
from app.host.system_calls import NoFilter
from tests.unit.workers.rank.launching import Run, make_plan, write_script
from workers.sandbox.sandbox import Bubblewrap, ProcessGroup, SandboxUnavailable, choose_sandbox

CALL = """
import ctypes, errno, json, os, signal, socket
libc = ctypes.CDLL(None, use_errno=True)
def called(number, *arguments):
    ctypes.set_errno(0)
    libc.syscall(number, *arguments)
    return ctypes.get_errno()
"""
# Arguments that are wrong: where the kernel has the call and nothing forbids it, it says so, and nothing happens.
EACH = """
print(json.dumps({name: called(number, *[-1] * 6) for name, number in NUMBERS.items()}))
"""
NAMESPACES = """
flags = {"NEWNS": 0x20000, "NEWCGROUP": 0x2000000, "NEWUTS": 0x4000000, "NEWIPC": 0x8000000, "NEWUSER": 0x10000000,
         "NEWPID": 0x20000000, "NEWNET": 0x40000000}
said = {}
for name, flag in flags.items():
    ctypes.set_errno(0)
    pid = libc.syscall(NUMBERS["clone"], flag | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    said[name] = ctypes.get_errno()
    if pid > 0:
        os.waitpid(pid, 0)
print(json.dumps(said))
"""
SOCKETS = """
said = {}
for name, (family, kind, protocol) in SOCKETS.items():
    try:
        socket.socket(family, kind, protocol).close()
        said[name] = 0
    except OSError as error:
        said[name] = error.errno
print(json.dumps(said))
"""
X32 = """
pid = os.fork()
if not pid:
    called(0x40000000 | NUMBERS["getpid"])
    os._exit(0)
_, status = os.waitpid(pid, 0)
print(json.dumps(os.waitstatus_to_exitcode(status)))
"""
TRAINING = """
import multiprocessing, mmap, select, subprocess, threading
from multiprocessing import shared_memory
done = []
thread = threading.Thread(target=done.append, args=["thread"])
thread.start()
thread.join()
done += multiprocessing.Pool(2).map(str.upper, ["fork"])
done.append(subprocess.run(["echo", "program"], capture_output=True, text=True).stdout.strip())
memory = shared_memory.SharedMemory(create=True, size=1 << 20)
memory.close()
memory.unlink()
mmap.mmap(-1, 1 << 20).close()
os.close(os.memfd_create("file"))
os.sched_setaffinity(0, os.sched_getaffinity(0))
select.epoll().close()
os.close(libc.inotify_init1(0))
pid = os.fork()
if not pid:
    signal.pause()
libc.ptrace(16, pid, 0, 0)  # PTRACE_ATTACH: py-spy and debuggers
done.append("debugger" if os.waitpid(pid, 0)[1] else "")
os.kill(pid, signal.SIGKILL)
print(json.dumps(done))
"""
FAMILIES = {
    "unix": (1, 1, 0),
    "ipv4": (2, 1, 0),
    "ipv6": (10, 1, 0),
    "netlink route": (16, 3, 0),
    "netlink audit": (16, 3, 9),
    "netlink netfilter": (16, 3, 12),
    "packet": (17, 3, 0),
    "alg": (38, 5, 0),
    "vsock": (40, 1, 0),
}


def number_of(name):
    return pyseccomp.resolve_syscall(pyseccomp.Arch.NATIVE, name)


def said_by(world, sandbox, script, names=("getpid", "clone")):
    world.mkdir(exist_ok=True)
    numbers = {name: number for name in names if (number := number_of(name)) >= 0}
    head = f"NUMBERS = {numbers!r}\nSOCKETS = {FAMILIES!r}\n{CALL}"
    run = Run(make_plan(world, write_script(world / "mine", head + script), sandbox))
    try:
        assert run.finish() == 0, run.log()
        return json.loads(run.log().splitlines()[-1])
    finally:
        run.close()


def test_calls_that_no_training_makes_are_refused(tmp_path):
    said = said_by(tmp_path, Bubblewrap(), EACH, DENIED | UNKNOWN)

    refused = {name: errno.EPERM if name in DENIED else errno.ENOSYS for name in said}
    assert len(said) >= 25
    assert said == refused


def test_it_is_the_sandbox_that_refuses_them(tmp_path):
    """Some the kernel refuses to everyone, or to everyone but root."""
    said = said_by(tmp_path, ProcessGroup(), EACH, ("unshare", "keyctl", "modify_ldt", "setns"))

    assert not set(said.values()) & {errno.EPERM, errno.ENOSYS}


def test_process_can_not_be_made_in_a_namespace_of_its_own(tmp_path):
    inside, outside = tmp_path / "inside", tmp_path / "outside"

    assert set(said_by(inside, Bubblewrap(), NAMESPACES).values()) == {errno.ENOSYS}
    assert said_by(outside, ProcessGroup(), NAMESPACES)["NEWUSER"] == 0


def test_sockets_lead_to_networks_and_not_into_the_kernel(tmp_path):
    said = said_by(tmp_path, Bubblewrap(), SOCKETS)

    assert {name for name, number in said.items() if number == 0} == {"unix", "ipv4", "ipv6", "netlink route"}


@pytest.mark.skipif(number_of("getpid") != 39, reason="x32 is another numbering of the calls of amd64")
def test_other_numbering_of_calls_is_no_way_around_the_filter(tmp_path):
    assert said_by(tmp_path, Bubblewrap(), X32) == -signal.SIGSYS


def test_calls_of_trainings_work(tmp_path):
    assert said_by(tmp_path, Bubblewrap(), TRAINING) == ["thread", "FORK", "program", "debugger"]


def test_without_a_filter_there_is_no_sandbox(monkeypatch):
    def fail(**_):
        raise NoFilter("libseccomp can't be used: not found")

    monkeypatch.setattr("app.host.system_calls.filter_program", fail)

    lack = lack_of_sandbox()

    assert lack is not None
    assert (lack.kind, str(lack)) == ("unfiltered", "libseccomp can't be used: not found")
    with pytest.raises(SandboxUnavailable, match="apt install libseccomp2"):
        choose_sandbox("auto")
