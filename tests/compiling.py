"""Compiles test files before several processes of pytest import them: each of these would rewrite all assertions.

That takes a process twenty seconds of computing in the first run of a checkout.
"""

import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from _pytest.assertion import rewrite  # what has no public name


def compile_tests(config: pytest.Config, is_collected: Callable[[Path], bool]) -> None:
    """What this run collects and no earlier run has compiled, where several processes will collect it."""
    if sys.dont_write_bytecode or hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        return
    paths = [path for path in _tests(config) if is_collected(path)]
    count, forking = os.cpu_count() or 1, multiprocessing.get_context("fork")
    processes = [forking.Process(target=_compile, args=(config, paths[first::count])) for first in range(count)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()


def _tests(config: pytest.Config) -> Iterator[Path]:
    patterns = (*config.getini("python_files"), "conftest.py")
    for path in (Path(argument.partition("::")[0]).absolute() for argument in config.args):
        for file in path.rglob("*.py") if path.is_dir() else [path]:
            if file.exists() and any(file.match(pattern) for pattern in patterns):
                yield file


def _pyc(path: Path) -> Path:
    return rewrite.get_cache_dir(path) / f"{path.stem}{rewrite.PYC_TAIL}"


def _compile(config: pytest.Config, paths: Sequence[Path]) -> None:
    for path in paths:
        if rewrite._read_pyc(path, _pyc(path)) is not None:
            continue
        with suppress(SyntaxError):  # which collection reports
            source_hash, code = rewrite._rewrite_test(path, config)
            _pyc(path).parent.mkdir(exist_ok=True)
            rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, source_hash, _pyc(path))
