"""Interpreter and environment of the platform's own processes that run for one job: supervisors and preflights."""

import importlib.util
import os
import sys
from dataclasses import fields
from pathlib import Path

import sqlalchemy

from config.settings import Settings, variable_name

_SHOWN = ("TRAINYARD_DATA_DIR", "TRAINYARD_NODE_NAME")


def process_environment(settings: Settings) -> dict[str, str]:
    """This process's environment with exactly these settings."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("TRAINYARD_")}
    ours |= settings_environment(settings)
    ours["PYTHONSAFEPATH"] = "1"
    ours["PYTHONPATH"] = str(Path(__file__).parents[1])
    ours["MALLOC_ARENA_MAX"] = "1"  # a few idle threads don't need a heap each
    return ours


def shown_environment() -> dict[str, str]:
    """What a process shows of its environment in /proc once that was replaced; the rest holds credentials."""
    return {name: os.environ[name] for name in _SHOWN if name in os.environ}


def settings_environment(settings: Settings) -> dict[str, str]:
    """The environment variables from which ``load_settings`` builds equal settings."""
    variables = {}
    for concern in fields(settings):
        part = getattr(settings, concern.name)
        for each in fields(part):
            variables[variable_name(concern.name, each.name)] = _text(getattr(part, each.name))
    return variables


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, tuple):
        separator = ":" if all(isinstance(item, Path) for item in value) else ","
        return separator.join(map(str, value))
    return str(value)


def process_interpreter() -> list[str]:
    """The interpreter; without docstrings (saves 3.5 MB per process) where the installation has precompiled
    SQLAlchemy that way.

    Elsewhere every start would compile SQLAlchemy again, which takes longer than the rest of the start.
    """
    compiled = importlib.util.cache_from_source(sqlalchemy.__file__, optimization="2")
    return [sys.executable, "-OO"] if Path(compiled).exists() else [sys.executable]
