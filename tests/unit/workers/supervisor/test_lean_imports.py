"""Modules that a supervisor leaves out are imported on first use."""

import subprocess
import sys

import pytest

USES = [
    "import asyncio; print(asyncio.run(asyncio.sleep(0, 'slept')))",
    "from asyncio import run, sleep; print(run(sleep(0, 'slept')))",
    "import asyncio.queues, asyncio; print(asyncio.queues.Queue is asyncio.Queue and 'slept')",
    "import importlib.metadata as m; print(m.version('SQLAlchemy') and 'slept')",
    "import importlib.metadata; print(importlib.metadata.version('SQLAlchemy') and 'slept')",
    # SQLAlchemy itself gets the real modules when it asks.
    "from sqlalchemy.util import compat; print(compat.asyncio.run(compat.asyncio.sleep(0, 'slept')))",
    "from sqlalchemy.util import compat; compat.importlib_metadata_get('x'); print('slept')",
]
# Each in a process in which nothing has been used yet: one child imports, its children are copies of it.
EACH_IN_A_COPY = """
import os, sys
import workers.supervisor.main
print(*sorted({"ssl", "email", "zipfile", "_ssl"} & set(sys.modules)), flush=True)
for use in sys.argv[1:]:
    if os.fork() == 0:
        exec(use, {})
        sys.exit()
    if os.wait()[1] != 0:
        sys.exit(use)
"""


def said(code: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.removesuffix("\n")


@pytest.mark.long
def test_a_supervisor_loads_neither_ssl_nor_email_and_what_was_left_out_comes_when_it_is_used():
    loaded, *used = said(EACH_IN_A_COPY, *USES).split("\n")

    assert loaded == ""
    assert used == ["slept"] * len(USES)


@pytest.mark.long
def test_nothing_is_deferred_where_sqlalchemy_is_loaded_already():
    assert said("import sqlalchemy, workers.supervisor.main, asyncio; print(asyncio.__file__ is not None)") == "True"
