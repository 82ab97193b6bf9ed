"""What `trainyard up` imports once for its processes: two of them must not import the same again."""

import json
import subprocess
import sys

import pytest

# Imports as `up` and its forks do, and prints what each of them adds. The API's part is its native application.
STARTS = """
import importlib, json, os, sys
import app.cli.local.up
from app.cli.local import preloading

def added(modules):
    before = set(sys.modules)
    for name in modules:
        importlib.import_module(name)
    return sorted(set(sys.modules) - before)

def added_by_fork(modules):
    reader, writer = os.pipe()
    if (pid := os.fork()) == 0:
        os.close(reader)
        names = added(modules)
        if "app.native" in sys.modules:
            names += added(f"app.api.{name}" for name in sys.modules["app.native"].MODULES)
        with open(writer, "w") as pipe:
            json.dump(names, pipe)
        os._exit(0)
    os.close(writer)
    with open(reader) as pipe:
        names = json.load(pipe)
    os.waitpid(pid, 0)
    return names

preloading.preload(preloading.CORE)
core = "prometheus_client" in sys.modules
api = added_by_fork(["gunicorn.app.wsgiapp", "app.server.gunicorn_worker", "app.late_application"])
workers = added(preloading.WORKERS)
gateway = added_by_fork(["app.gateway.__main__"])
threads = len(os.listdir("/proc/self/task"))
print(json.dumps({"core": core, "api": api, "workers": workers, "gateway": gateway, "threads": threads}))
"""
MOST_IN_COMMON = 20  # modules of ours that two of them import; 6 when this was written
MOST_OF_GATEWAY = 150  # modules that a gateway adds; 128 when this was written


@pytest.mark.long
def test_processes_of_up_import_little_that_another_has_imported() -> None:
    done = subprocess.run([sys.executable, "-c", STARTS], capture_output=True, text=True, check=True)

    said = json.loads(done.stdout)
    api, workers, gateway = set(said["api"]), set(said["workers"]), set(said["gateway"])
    common = {name for name in (api & workers) | (api & gateway) if name.startswith(("app.", "config."))}
    assert said["core"] is False  # each process chooses the form of its counters
    assert said["threads"] == 1  # or none of them could be forked
    assert len(api) > 50
    assert len(gateway) < MOST_OF_GATEWAY, sorted(gateway)
    assert len(common) < MOST_IN_COMMON, sorted(common)
