"""Runs at the start of every Python process of a system under test, and wraps the functions that crash points name.

Python imports a `sitecustomize` by itself when it starts; this folder is the first on its PYTHONPATH. What it wraps
says `points.json` in the folder that TESTS_CRASH_POINTS names. Nothing happens until a point is armed by a file.
Standard library only: it is there before anything else.
"""

import datetime as dt
import functools
import importlib.abc
import importlib.util
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

FOLDER = Path(os.environ["TESTS_CRASH_POINTS"])
# What it builds must lead the next processes here, too: PYTHONPATH is replaced there.
HANDED_ON = ("workers.node.spawn_supervisor", "process_environment")


def wrapped(function: Callable[..., Any], name: str, when: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if when == "before":
            reach(name, (args, kwargs))
        result = function(*args, **kwargs)
        if when == "after":
            reach(name, (args, kwargs))
        return result

    return call


def reach(name: str, given: Any) -> None:
    """Do what the point is armed for, if it is; once in all processes together."""
    try:
        order = json.loads((FOLDER / f"{name}.armed").read_text())
    except (FileNotFoundError, ValueError):
        return
    if order["job"] and order["job"] not in sys.argv and order["job"] not in repr(given):
        return
    passed[name] = passed.get(name, 0) + 1
    if passed[name] != order["nth"]:
        return
    try:
        descriptor = os.open(FOLDER / f"{name}.fired", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    except FileExistsError:
        return
    os.write(descriptor, json.dumps({"pid": os.getpid(), "boot_ns": boot_ns(), "argv": sys.argv}).encode())
    os.close(descriptor)
    os.kill(os.getpid(), signal.Signals[order["signal"]])


def boot_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def leads_here(function: Callable[..., dict[str, str]]) -> Callable[..., dict[str, str]]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> dict[str, str]:
        environment = function(*args, **kwargs)
        here = str(Path(__file__).parent)
        return environment | {"PYTHONPATH": os.pathsep.join((here, environment["PYTHONPATH"]))}

    return call


def shift_the_clock(seconds: float) -> None:
    """Give this process another time of day; nothing else that counts time is touched.

    Not by libfaketime: with it on recent Pythons time.sleep raises, and timers of the C library do.
    """
    wall, wall_ns, real, by = time.time, time.time_ns, dt.datetime, dt.timedelta(seconds=seconds)
    time.time = lambda: wall() + seconds
    time.time_ns = lambda: wall_ns() + int(seconds * 1e9)

    class Kind(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, real)

    class Shifted(dt.datetime, metaclass=Kind):
        """Stands in for the class; there is never an instance of it."""

        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            return real(*args, **kwargs)

        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> Any:
            return real.now(tz) + by

    others: dict[str, Callable[..., Any]] = {
        name: getattr(real, name) for name in ("fromisoformat", "fromtimestamp", "combine", "strptime")
    }
    others["utcnow"] = lambda: real.now(dt.UTC).replace(tzinfo=None) + by
    others["today"] = lambda: real.now() + by
    for name, method in others.items():
        setattr(Shifted, name, staticmethod(method))
    dt.datetime = Shifted  # type: ignore[misc]


class Finder(importlib.abc.MetaPathFinder):
    """Finds a module by the other finders and wraps its functions before any importer sees them."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in wanted:
            return None
        for finder in sys.meta_path:
            if finder is not self and (spec := finder.find_spec(fullname, path, target)) is not None:
                break
        else:
            return None
        if (loader := spec.loader) is not None:
            execute = loader.exec_module

            def execute_and_wrap(module: ModuleType) -> None:
                execute(module)
                wrap_all(module)

            loader.exec_module = execute_and_wrap  # type: ignore[method-assign]
        return spec


def wrap_all(module: ModuleType) -> None:
    for name, qualified, when in wanted[module.__name__]:
        *outer, last = qualified.split(".")
        owner = functools.reduce(getattr, outer, module)
        was = getattr(owner, last)
        setattr(owner, last, leads_here(was) if when == "environment" else wrapped(was, name, when))


passed: dict[str, int] = {}
wanted: dict[str, list[tuple[str, str, str]]] = {HANDED_ON[0]: [("", HANDED_ON[1], "environment")]}
for point in json.loads((FOLDER / "points.json").read_text()):
    module_name, _, qualified_name = point["target"].partition(":")
    wanted.setdefault(module_name, []).append((point["name"], qualified_name, point["when"]))
sys.meta_path.insert(0, Finder())
if "TESTS_CLOCK_SHIFT_SECONDS" in os.environ:
    shift_the_clock(float(os.environ["TESTS_CLOCK_SHIFT_SECONDS"]))
