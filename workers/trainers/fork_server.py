"""Forks rank agents, which fork ranks, with torch and its libraries imported: `python -m workers.trainers.fork_server`.

Started by the node worker with the descriptors of ``workers.fork_server.server`` and the environment of a rank. Each
child enters the sandbox of one attempt, which its supervisor has made, and is the agent there. A rank that could read
something else at its imports than this server did starts as a program.
"""

import importlib
import os
import signal
import sys
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from app.domain.spec.frameworks.deepspeed import DEEPSPEED
from app.host.command_line import show_command_line
from trainyard.protocol.run_spec import RunSpec
from workers.fork_server.requests import Request
from workers.fork_server.server import serve
from workers.rank import agent
from workers.sandbox.forked_launch import INSPECTION
from workers.sandbox.launcher import inherited_environment
from workers.sandbox.namespaces import drop_permissions, join
from workers.trainers import inspection

# Trainers of these frameworks run with what is imported here.
WARM = frozenset({"HF_TRAINER", "FSDP"})
# Imported in the middle of a training or an inspection; of the architectures of models the most frequent one.
LATER = (
    *(f"workers.trainers.{name}" for name in ("distributed", "failures", "inspection_data", "inspection_model")),
    *("transformers.models.llama.modeling_llama", "peft.utils.transformers_weight_conversion"),
    *("numpy.ctypeslib", "torch.profiler._cupti_monitor"),
)
# By these /proc tells which attempt and which rank a process belongs to.
SHOWN = ("TRAINYARD_JOB_ID", "TRAINYARD_ATTEMPT", "TRAINYARD_NODE", "RANK")
STDERR = 2
NOT_STARTED = 70  # EX_SOFTWARE of sysexits.h


def main() -> int:
    """Serve; a child ends as an agent."""
    for name in ("bitsandbytes", DEEPSPEED.lower()):
        sys.modules[name] = None  # type: ignore[assignment]  # as in workers.trainers.main
    _import_trainers()
    request = serve(int(sys.argv[1]), int(sys.argv[2]))
    if request is not None:
        passed_on = inherited_environment(request.fields["environment"])
        is_warm = passed_on == inherited_environment(os.environ)
        _enter(request)
        if request.fields["kind"] == INSPECTION:
            _become_inspection(request, is_warm=is_warm)
        _become_agent(request, is_warm=is_warm)
    return 0


def _import_trainers() -> None:
    from workers.trainers import registry  # noqa: PLC0415  only now, without what this process lacks

    for framework, method in registry.TRAINERS:
        if framework in WARM and method != "QLORA":
            registry.load(framework, method)
    for module in LATER:
        with suppress(ImportError):  # another version of a library
            importlib.import_module(module)


def _enter(request: Request) -> None:
    """Continue in a process inside the sandbox, as a child of its init."""
    sandbox, *_ = request.files
    join(request.fields["sandbox_pid"], sandbox)
    # A process's own PID namespace never changes: only its children are in the sandbox's, and only when the first of
    # them has ended its children are children of the init there.
    first = os.fork()
    if first:
        request.connection.close()
        os.waitpid(first, 0)  # or it would hold up the end of the namespace
        os._exit(0)
    if os.fork():
        os._exit(0)


def _become_agent(request: Request, *, is_warm: bool) -> NoReturn:
    """What `python -m workers.rank.agent` in the sandbox would be."""
    control, *logs = _become(request)
    spec = Path(request.fields["spec"])
    _run(
        lambda: agent.run(spec, logs, control, fork_rank=_fork_rank if is_warm else None),
        at_end=lambda code: _tell(request, code),
    )


def _become_inspection(request: Request, *, is_warm: bool) -> NoReturn:
    """What `python -m workers.trainers.inspection` in the sandbox would be."""
    if not is_warm:
        os._exit(NOT_STARTED)
    _become(request)
    _run(inspection.main, at_end=lambda code: _tell(request, code))


def _become(request: Request) -> list[int]:
    """Be in the sandbox what the command of the request would be; returns the files of the program."""
    _, holder, output, *files = request.files
    command, directory = request.fields["command"], request.fields["directory"]
    os.setsid()
    drop_permissions()
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(request.fields["environment"], PWD=directory)  # which bubblewrap sets, too
    _show(command)
    sys.argv = list(command[command.index("-m") + 1 :])
    if not request.is_confirmed():
        os._exit(NOT_STARTED)
    for file in (holder, *files):
        os.set_inheritable(file, False)
    _close_others({holder, *files}, output=output)
    return files


def _tell(request: Request, code: int) -> None:
    """Give the exit code to the shell that waits in the sandbox."""
    os.write(request.files[1], f"{code}\n".encode())


def _fork_rank(
    spec: RunSpec, command: Sequence[str], directory: Path, log: int, environment: Mapping[str, str]
) -> int | None:
    """The pid of a rank, forked; None if it has to start as a program."""
    if spec.framework not in WARM or spec.training_type == "QLORA" or spec.device_type != "cpu":
        return None
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        _run(lambda: _become_rank(command, directory, log, environment, parent))
    return pid


def _become_rank(command: Sequence[str], directory: Path, log: int, environment: Mapping[str, str], parent: int) -> int:
    """What the command, started by the agent, would be."""
    import numpy as np  # noqa: PLC0415  with its fork server, not with every agent

    from workers.trainers import main as rank  # noqa: PLC0415

    agent.as_rank(parent)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    _close_others((), output=log)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    np.random.seed()  # noqa: NPY002  as in any new process; Python's own generator does it by itself
    sys.argv = list(command[command.index("-m") + 1 :])
    _show(command)
    return rank.main()


def _show(command: Sequence[str]) -> None:
    show_command_line(command, {name: os.environ[name] for name in SHOWN if name in os.environ})


def _close_others(kept: Collection[int], *, output: int) -> None:
    """Write to ``output``, and close every other file; input is empty, as it was in the server."""
    os.dup2(output, 1)
    os.dup2(output, 2)
    for file in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        if file > STDERR and file not in kept:
            with suppress(OSError):  # of the directory that was listed
                os.close(file)


def _run(work: Callable[[], int], *, at_end: Callable[[int], object] = id) -> NoReturn:
    """End this process with the exit code that a program with this body would have, after ``at_end(code)``."""
    code = 1
    try:
        code = work()
    except SystemExit as end:
        if isinstance(end.code, str):
            sys.stderr.write(f"{end.code}\n")
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001  as any uncaught exception
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    with suppress(OSError):  # the sandbox is ending, too
        at_end(code)
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
