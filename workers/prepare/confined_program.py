"""What programs that inspect users' files in a sandbox have in common: their environment, and their end."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from app.storage.storage import Storage
from config.settings import Settings
from workers.fetching.directory_locks import DirectoryLock, sweep
from workers.prepare.private_paths import private_paths
from workers.sandbox.launcher import inherited_environment, inherited_libraries, user_environment
from workers.sandbox.sandbox import Sandbox
from workers.sandbox.spec import Account, FilesystemView, SandboxSpec


@contextlib.contextmanager
def scratch(settings: Settings, name: str) -> Iterator[FilesystemView]:
    """A directory for one program, and what it sees of this machine."""
    parent = settings.data.dir.resolve() / "run" / "preflight"
    sweep(parent)
    with DirectoryLock(parent, name) as directory:
        for each in ("work", "tmp"):
            (directory.path / each).mkdir()
        yield FilesystemView(
            run_dir=directory.path,
            data_dir=settings.data.dir.resolve(),
            software=settings.node.software,
            libraries=inherited_libraries(),
            hidden=private_paths(settings, Storage(settings.storage.url)),
        )


def run(
    sandbox: Sandbox, command: Sequence[str], spec: SandboxSpec, files: tuple[int, IO[bytes], IO[bytes]], seconds: float
) -> str:
    """Why the program has no result, as far as its end says; ``files``: its input, output and log."""
    given, output, log = files
    with sandbox.enclosed(command, spec) as enclosed:
        process = subprocess.Popen(
            enclosed.command,
            env=environment(spec.view, sandbox),
            cwd=spec.view.run_dir,
            stdin=given,
            stdout=output,
            stderr=log,
            pass_fds=enclosed.files,
            start_new_session=True,
        )
        try:
            code = process.wait(seconds)
            return f"it ended with exit code {code}" if code else ""
        except subprocess.TimeoutExpired:
            return f"it took longer than {seconds:.0f} s"
        finally:
            end(process)


def last_line(log: IO[bytes]) -> str:
    """What the program said last, behind a colon."""
    log.seek(max(0, log.seek(0, os.SEEK_END) - 2000))
    lines = log.read().decode(errors="replace").strip().splitlines()
    return f": {lines[-1][:300]}" if lines else ""


def environment(view: FilesystemView, sandbox: Sandbox) -> dict[str, str]:
    work = view.run_dir / "work"
    return {
        **inherited_environment(),
        **user_environment(sandbox.kind, Account()),
        "HOME": str(work),
        "HF_HOME": str(work / "huggingface"),
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONSAFEPATH": "1",
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill the program with its process group: without bubblewrap, children may be left in its session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
