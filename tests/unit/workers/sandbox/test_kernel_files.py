"""What a script in a sandbox can do to the kernel of its machine, also as root."""

import json
from pathlib import Path

import pytest

from tests.unit.workers.rank.launching import Run, make_plan, write_script
from workers.sandbox.kernel_files import MASKED, READ_ONLY
from workers.sandbox.sandbox import Bubblewrap, ProcessGroup

SETTINGS = (
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/panic",
    "/proc/sys/kernel/hostname",
    "/proc/sys/vm/overcommit_memory",
)

# Writes back what it read: on a machine where this succeeds nothing changes.
WRITE = """
import json
said = {}
for path in PATHS:
    try:
        with open(path) as file:
            value = file.read()
        with open(path, "w") as file:
            file.write(value)
        said[path] = "written"
    except OSError as error:
        said[path] = type(error).__name__ + " " + str(error.errno)
print(json.dumps(said))
"""

READ = """
import json, os
def seen(path):
    try:
        return os.listdir(path) if os.path.isdir(path) else open(path).read()
    except OSError:
        return []
print(json.dumps({path: len(seen(path)) for path in PATHS}))
"""

CRASH = """
import json, os, resource
soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
pid = os.fork()
if not pid:
    os.abort()
_, status = os.waitpid(pid, 0)
print(json.dumps({"dumped": os.WCOREDUMP(status), "limits": [soft, hard], "files": os.listdir()}))
"""

RAISE = """
import json, resource
try:
    resource.setrlimit(resource.RLIMIT_CORE, (1 << 30, 1 << 30))
    print(json.dumps("raised"))
except ValueError:
    print(json.dumps("refused"))
"""


def said(tmp_path, sandbox, text, paths=()):
    script = write_script(tmp_path / "mine", f"PATHS = {list(paths)!r}\n{text}")
    run = Run(make_plan(tmp_path, script, sandbox))
    try:
        assert run.finish() == 0, run.log()
        return json.loads(run.log())
    finally:
        run.close()


def test_settings_of_the_kernel_can_not_be_written(tmp_path):
    before = [Path(path).read_text() for path in SETTINGS]

    answers = said(tmp_path, Bubblewrap(), WRITE, SETTINGS)

    # EROFS for root; a job of an ordinary user gets EACCES, EPERM or EROFS, too.
    assert {answer.rpartition(" ")[2] for answer in answers.values()} <= {"30", "13", "1"}, answers
    assert [Path(path).read_text() for path in SETTINGS] == before


@pytest.mark.parametrize("path", [path for path in READ_ONLY if Path(path).is_dir()])
def test_files_that_steer_devices_are_mounted_read_only(tmp_path, path):
    flags = said(
        tmp_path, Bubblewrap(), "import json, os\nprint(json.dumps(os.statvfs(PATHS[0]).f_flag & os.ST_RDONLY))", [path]
    )

    assert flags


def test_kernel_files_that_describe_the_machine_are_empty(tmp_path):
    there = [path for path in MASKED if Path(path).exists()]
    assert there

    assert set(said(tmp_path, Bubblewrap(), READ, there).values()) == {0}


@pytest.mark.parametrize("sandbox", [Bubblewrap(), ProcessGroup()], ids=lambda sandbox: sandbox.kind)
def test_crash_of_a_process_leaves_no_core(tmp_path, sandbox):
    assert said(tmp_path, sandbox, CRASH) == {"dumped": False, "limits": [0, 0], "files": []}


def test_job_can_not_raise_the_limit_of_core_files(tmp_path):
    assert said(tmp_path, Bubblewrap(), RAISE) == "refused"
