"""Forks rank agents, which fork ranks, with torch and its libraries imported: `python -m workers.trainers.fork_server`.

Started by the node worker with the descriptors of ``workers.fork_server.server`` and the environment of a rank. Each
child enters the sandbox of one attempt, which its supervisor has made, and is the agent there. A rank that could read
something else at its imports than this server did starts as a program.
"""

import ctypes
import importlib
import os
import signal
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from app.domain.spec.inference import TRANSFORMERS
from app.host.command_line import show_command_line
from app.host.forks import close_descriptors, run_as_program
from app.host.landlock import stay_below
from app.host.oom_score import OF_SANDBOXES, raise_oom_score
from app.host.system_calls import filter_program, restrict
from trainyard.protocol.run_spec import RunSpec
from workers.fork_server.requests import ForkRequest
from workers.fork_server.server import serve
from workers.rank import agent
from workers.rank.environment import FORKED_HF_HOME
from workers.rank.rank_process import as_rank
from workers.sandbox.forked_launch import INSPECTION
from workers.sandbox.launcher import inherited_environment
from workers.sandbox.namespaces import become, drop_permissions, join
from workers.trainers import inspection
from workers.trainers.hidden_packages import leave_out, quantizes

# Trainers of these frameworks run with what is imported here.
WARM = frozenset({"HF_TRAINER", "FSDP", TRANSFORMERS})
# Imported in the middle of a training or an inspection; of the architectures of models the most frequent one.
LATER = (
    *(f"workers.trainers.{name}" for name in ("distributed", "failures", "inspection_data", "inspection_model")),
    *("transformers.models.llama.modeling_llama", "peft.utils.transformers_weight_conversion"),
    *("numpy.ctypeslib", "torch.profiler._cupti_monitor"),
    "workers.trainers.inference.engine.transformers_engine",
    *("workers.trainers.main", "workers.trainers.rollouts.main", "workers.trainers.rollouts.model"),
)
# By these /proc tells which attempt and which rank a process belongs to.
SHOWN = (
    *("TRAINYARD_JOB_ID", "TRAINYARD_ATTEMPT", "TRAINYARD_NODE", "RANK"),
    *("TRAINYARD_ROLE", "TRAINYARD_TASK_INDEX", "TRAINYARD_RANK"),
)
KEY_BYTES = 32  # of multiprocessing's own
# Of malloc.h, and what glibc begins with.
MALLOC_DEFAULTS = {-1: 128 << 10, -3: 128 << 10}  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD
NOT_STARTED = 70  # EX_SOFTWARE of sysexits.h


def main() -> int:
    """Serve; a child ends as an agent."""
    leave_out(WARM, ["SFT"])
    _import_trainers()
    filter_program()  # which children have from here
    request = serve(*map(int, sys.argv[1:4]))
    if request is not None:
        passed_on = inherited_environment(request.fields["environment"])
        is_warm = passed_on == inherited_environment(os.environ)
        with _giving_up():
            _enter(request)
        if request.fields["kind"] == INSPECTION:
            _become_inspection(request, is_warm=is_warm)
        _become_agent(request, is_warm=is_warm)
    return 0


def _import_trainers() -> None:
    from workers.trainers import registry  # noqa: PLC0415  only now, without what this process lacks

    for framework, method in (*registry.TRAINERS, *registry.INFERENCE):
        if framework in WARM and method != "QLORA":
            registry.load(framework, method)
    for module in LATER:
        with suppress(ImportError):  # another version of a library
            importlib.import_module(module)


def _enter(request: ForkRequest) -> None:
    """Continue in a process inside the sandbox and its control groups, as a child of its init."""
    sandbox, *_ = request.files
    with _giving_up():
        for file in request.fields["joined"]:
            Path(file).write_text("0")
    raise_oom_score(OF_SANDBOXES)  # as ``joining`` does for what starts as a program
    own_user = request.fields["user"]
    if own_user:
        os.setgroups([])  # inside it would be forbidden
    join(request.fields["sandbox_pid"], sandbox)
    if own_user:
        become(*own_user)
    # A process's own PID namespace never changes: only its children are in the sandbox's, and only when the first of
    # them has ended its children are children of the init there.
    first = os.fork()
    if first:
        request.connection.close()
        os.waitpid(first, 0)  # or it would hold up the end of the namespace
        os._exit(0)
    if os.fork():
        os._exit(0)


def _become_agent(request: ForkRequest, *, is_warm: bool) -> NoReturn:
    """What `python -m workers.rank.agent` in the sandbox would be."""
    control, *logs = _become(request)
    spec = Path(request.fields["spec"])
    with _giving_up():
        stay_below(Path("/"), outputs=logs, required=RunSpec.read(spec).locked)  # as the program does
    run_as_program(
        lambda: agent.run(spec, logs, control, fork_rank=_fork_rank if is_warm else None),
        at_end=lambda code: _tell(request, code),
    )


def _become_inspection(request: ForkRequest, *, is_warm: bool) -> NoReturn:
    """What `python -m workers.trainers.inspection` in the sandbox would be."""
    if not is_warm:
        os._exit(NOT_STARTED)
    _become(request)
    os.environ["HF_HOME"] = FORKED_HF_HOME  # as libraries have read it
    run_as_program(inspection.main, at_end=lambda code: _tell(request, code))


def _become(request: ForkRequest) -> list[int]:
    """Be in the sandbox what the command of the request would be; returns the files of the program."""
    _, exit_code_pipe, output, *files = request.files
    command, directory = request.fields["command"], request.fields["directory"]
    with _giving_up():
        os.setsid()
        drop_permissions()
        os.chdir(directory)
        os.environ.clear()
        os.environ.update(request.fields["environment"], PWD=directory)  # which bubblewrap sets, too
        _show(command)
        restrict(filter_program())  # as bubblewrap does for what it starts
    sys.argv = list(command[command.index("-m") + 1 :])
    if not request.is_confirmed():
        os._exit(NOT_STARTED)
    for file in (exit_code_pipe, *files):
        os.set_inheritable(file, False)
    _write_to(output, kept=(exit_code_pipe, *files))
    _seed()
    return files


@contextmanager
def _giving_up() -> Iterator[None]:
    """End this process on an error; its client starts the program in another way."""
    try:
        yield
    except OSError as error:
        sys.stderr.write(f"a process could not be forked into its sandbox: {error}\n")
        sys.stderr.flush()
        os._exit(NOT_STARTED)


def _seed() -> None:
    """Draw anew what libraries drew when they were imported; ``random`` itself does it after each fork."""
    import numpy as np  # noqa: PLC0415  only now, as in _import_trainers
    from datasets import fingerprint  # noqa: PLC0415

    np.random.seed()  # noqa: NPY002
    fingerprint.fingerprint_rng.seed()
    for name in ("multiprocessing", "multiprocess"):  # the latter is the copy that datasets uses
        sys.modules[name].current_process().authkey = os.urandom(KEY_BYTES)


def _tell(request: ForkRequest, code: int) -> None:
    """Give the exit code to the shell that waits in the sandbox."""
    os.write(request.files[1], f"{code}\n".encode())


def _fork_rank(
    spec: RunSpec, command: Sequence[str], directory: Path, log: int, environment: Mapping[str, str]
) -> int | None:
    """The pid of a rank, forked; None if it has to start as a program."""
    if spec.framework not in WARM or quantizes(spec):
        return None
    on_gpu = spec.device_type != "cpu"
    if on_gpu and _has_initialized_cuda():
        return None
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        if on_gpu:
            _keep_less_memory()
        run_as_program(lambda: _become_rank(command, directory, log, environment, parent))
    return pid


def _has_initialized_cuda() -> bool:
    """Whether an import initialized CUDA's driver, which then has devices mapped: a fork cannot use it any more."""
    return "/dev/nvidia" in Path("/proc/self/maps").read_text()


def _keep_less_memory() -> None:
    """Freed memory goes back to the system, other than on the CPU (``CPU_MEMORY_SETTINGS``)."""
    libc = ctypes.CDLL(None)
    for parameter, value in MALLOC_DEFAULTS.items():
        libc.mallopt(parameter, value)


def _become_rank(command: Sequence[str], directory: Path, log: int, environment: Mapping[str, str], parent: int) -> int:
    """What the command, started by the agent, would be."""
    as_rank(parent)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    _write_to(log)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment, HF_HOME=FORKED_HF_HOME)  # as libraries have read it
    os.environ.setdefault("TRITON_HOME", str(Path.home()))  # which Triton otherwise determines at its import
    _seed()
    sys.argv = list(command[command.index("-m") + 1 :])
    _show(command)
    program: Callable[[], int | None] = importlib.import_module(sys.argv[0]).main
    return program() or 0


def _show(command: Sequence[str]) -> None:
    show_command_line(command, {name: os.environ[name] for name in SHOWN if name in os.environ})


def _write_to(output: int, *, kept: Collection[int] = ()) -> None:
    """Close every other file than ``kept``; input is empty, as it was in the server."""
    os.dup2(output, 1)
    os.dup2(output, 2)
    close_descriptors(but={0, 1, 2, *kept})


if __name__ == "__main__":
    sys.exit(main())
