"""Compiles test files before several processes of pytest import them: each of these would rewrite all assertions.

That takes a process twenty seconds of computing in the first run of a checkout. What can't be compiled or stored here
is left to collection, which does it or says why not.
"""

import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from _pytest.assertion import rewrite  # what has no public name

TESTS = Path(__file__).parent


def compile_tests(config: pytest.Config, is_collected: Callable[[Path], bool]) -> None:
    """What this run collects and no earlier run has compiled, where several processes will collect it."""
    if sys.dont_write_bytecode or hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        return
    if config.getoption("assertmode") == "plain":
        return
    paths = [path for path in _tests(config) if is_collected(path)]
    count, forking = min(len(paths), len(os.sched_getaffinity(0))), multiprocessing.get_context("fork")
    processes = [forking.Process(target=_compile, args=(config, paths[first::count])) for first in range(count)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()


def _tests(config: pytest.Config) -> Iterator[Path]:
    patterns = (*config.getini("python_files"), "conftest.py")
    for path in (Path(argument.partition("::")[0]).resolve() for argument in config.args):
        for file in path.rglob("*.py") if path.is_dir() else [path]:
            if file.is_relative_to(TESTS) and file.exists() and any(file.match(pattern) for pattern in patterns):
                yield file


def compiled(path: Path) -> Path:
    """The path of the bytecode that pytest keeps for a test file."""
    return rewrite.get_cache_dir(path) / f"{path.stem}{rewrite.PYC_TAIL}"


def compile_file(config: pytest.Config, path: Path) -> None:
    """As pytest does when it imports the file, unless it is compiled already."""
    if rewrite._read_pyc(path, compiled(path)) is not None:
        return
    source_hash, code = rewrite._rewrite_test(path, config)
    rewrite.try_makedirs(compiled(path).parent)
    rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, source_hash, compiled(path))


def _compile(config: pytest.Config, paths: Sequence[Path]) -> None:
    for path in paths:
        with suppress(Exception):
            compile_file(config, path)
