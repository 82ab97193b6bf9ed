"""What a supervisor leaves out comes as soon as somebody uses it."""

import subprocess
import sys

import pytest

USES = {
    "asyncio": "import asyncio; print(asyncio.run(asyncio.sleep(0, 'slept')))",
    "a name of asyncio": "from asyncio import run, sleep; print(run(sleep(0, 'slept')))",
    "a submodule of asyncio": (
        "import asyncio.queues, asyncio; print(asyncio.queues.Queue is asyncio.Queue and 'slept')"
    ),
    "importlib.metadata": "import importlib.metadata as m; print(m.version('SQLAlchemy') and 'slept')",
    "importlib.metadata by its full name": (
        "import importlib.metadata; print(importlib.metadata.version('SQLAlchemy') and 'slept')"
    ),
}


def said(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_supervisor_loads_neither_ssl_nor_email():
    left_out = said(
        "import workers.supervisor.main, sys; print({'ssl', 'email', 'zipfile', '_ssl'} & set(sys.modules))"
    )

    assert left_out == "set()"


@pytest.mark.parametrize("use", USES)
def test_what_was_left_out_comes_when_it_is_used(use):
    assert said(f"import workers.supervisor.main; {USES[use]}") == "slept"


def test_sqlalchemy_itself_gets_the_real_modules_when_it_asks():
    real = "from sqlalchemy.util import compat; print(compat.asyncio.run(compat.asyncio.sleep(0, 'slept')))"
    entry_points = "from sqlalchemy.util import compat; compat.importlib_metadata_get('x'); print('slept')"

    assert said(f"import workers.supervisor.main; {real}") == "slept"
    assert said(f"import workers.supervisor.main; {entry_points}") == "slept"


def test_nothing_is_put_off_where_sqlalchemy_is_loaded_already():
    assert said("import sqlalchemy, workers.supervisor.main, asyncio; print(asyncio.__file__ is not None)") == "True"
