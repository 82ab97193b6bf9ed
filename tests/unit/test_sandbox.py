"""What a script can see and change inside each sandbox."""

import json
import stat
import sys
from pathlib import Path

import pytest

from tests.unit.launching import Run, make_plan, write_script
from workers.sandbox import Bubblewrap, ProcessGroup, View, bubblewrap_works, choose_sandbox

PROBE = """
import json, os, socket, sys
def can_read(path):
    try:
        return os.listdir(path) if os.path.isdir(path) else open(path).read()
    except OSError as error:
        return f"{type(error).__name__}"
def can_write(path):
    try:
        open(path, "a").close()
        return True
    except OSError:
        return False
facts = {"read": {p: can_read(p) for p in PATHS}, "write": {p: can_write(p) for p in PATHS_W}}
facts["processes"] = sorted(int(p) for p in os.listdir("/proc") if p.isdigit())
facts["capabilities"] = [l.split()[1] for l in open("/proc/self/status") if l.startswith("CapEff")][0]
print(json.dumps(facts))
"""


@pytest.fixture
def world(tmp_path):
    """A data directory with secrets, a model in it, and data outside of it."""
    data_dir = tmp_path / "data"
    (data_dir / "files" / "model").mkdir(parents=True)
    (data_dir / "files" / "model" / "config.json").write_text("{}")
    (data_dir / "files" / "other").mkdir()
    (data_dir / "secret.key").write_text("hunter2")
    (data_dir / "trainyard.db").write_text("rows")
    (data_dir / "run" / "jobs" / "job-of-somebody-else").mkdir(parents=True)
    (tmp_path / "corpus.jsonl").write_text("{}\n")
    return tmp_path


def probe(world, sandbox, read, write, readable=()):
    paths = f"PATHS = {list(map(str, read))!r}\nPATHS_W = {list(map(str, write))!r}\n"
    script = write_script(world / "mine", paths + PROBE)
    run = Run(make_plan(world, script, sandbox, readable=readable))
    try:
        assert run.finish() == 0, run.log()
        return json.loads(run.log())
    finally:
        run.close()


def test_bubblewrap_works_on_this_machine():
    assert bubblewrap_works()
    assert choose_sandbox("auto").kind == "bubblewrap"
    assert choose_sandbox("process").kind == "process"


def test_bubblewrap_hides_the_data_directory(world):
    data_dir = world / "data"

    facts = probe(world, Bubblewrap(), [data_dir, data_dir / "secret.key", data_dir / "run" / "jobs"], [])

    assert sorted(facts["read"][str(data_dir)]) == ["run"]
    assert facts["read"][str(data_dir / "secret.key")] == "FileNotFoundError"
    assert facts["read"][str(data_dir / "run" / "jobs")] == ["job-00000000-0000-7000-8000-000000000001"]


def test_bubblewrap_shows_model_and_data_read_only(world):
    model, corpus = world / "data/files/model/config.json", world / "corpus.jsonl"

    facts = probe(
        world,
        Bubblewrap(),
        [model, corpus, world / "data/files/other"],
        [model, corpus, world / "data/files/model/new"],
        readable=[model.parent, corpus],
    )

    assert facts["read"][str(model)] == "{}"
    assert facts["read"][str(corpus)] == "{}\n"
    assert facts["read"][str(world / "data/files/other")] == "FileNotFoundError"
    assert not any(facts["write"].values())


def test_bubblewrap_lets_a_rank_write_its_run_directory_only(world):
    run_dir = world / "data/run/jobs/job-00000000-0000-7000-8000-000000000001/1"
    writable = [run_dir / "work/x", run_dir / "output/x", "/tmp/x", "/dev/shm/x"]
    protected = [run_dir / "code/train.py", run_dir / "spec.json", "/etc/x", "/usr/x", Path(sys.prefix) / "x"]

    facts = probe(world, Bubblewrap(), [], [*writable, *protected])

    assert [path for path, could in facts["write"].items() if could] == list(map(str, writable))
    assert not (world / "x").exists()


def test_bubblewrap_has_its_own_processes_and_no_capabilities(world):
    facts = probe(world, Bubblewrap(), [], [])

    assert facts["processes"][0] == 1
    assert len(facts["processes"]) <= 4
    assert int(facts["capabilities"], 16) == 0


def test_bubblewrap_hides_our_data_from_a_script_that_lies_beside_it(world):
    paths = f"PATHS = {[str(world / 'data/run/jobs/job-00000000-0000-7000-8000-000000000001/1/code/data')]!r}\n"
    script = write_script(world, paths + "PATHS_W = []\n" + PROBE)
    run = Run(make_plan(world, script, Bubblewrap()))

    try:
        assert run.finish() == 0, run.log()
        assert list(json.loads(run.log())["read"].values()) == [[]]
    finally:
        run.close()


def test_our_code_stays_readable_below_a_hidden_directory(tmp_path):
    arguments = Bubblewrap().enclose(
        ["true"],
        View(run_dir=_made(Path(sys.prefix).parent / ".trial" / "run", tmp_path), data_dir=Path(sys.prefix).parent),
    )

    hidden = arguments.index("--tmpfs")
    assert str(Path(sys.prefix).resolve()) in arguments[hidden + 2 :]


def _made(wanted, tmp_path):
    # Only arguments are looked at: the run directory itself may lie anywhere.
    run_dir = tmp_path / wanted.name
    run_dir.mkdir()
    return run_dir


def test_process_group_links_the_script_directory(world):
    facts = probe(world, ProcessGroup(), [world / "corpus.jsonl"], [world / "data/run/written"])

    assert facts["read"][str(world / "corpus.jsonl")] == "{}\n"
    assert facts["write"][str(world / "data/run/written")]
    code = world / "data/run/jobs/job-00000000-0000-7000-8000-000000000001/1/code"
    assert stat.S_ISLNK(code.lstat().st_mode)
