"""What the programs of preflights have in common: one question, one answer, and an end with their parent."""

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

from app.host.privacy import hide_from_same_user
from app.host.processes import die_with_parent
from config.settings import Settings, load_settings

Question = Mapping[str, Any]
Report = dict[str, Any]


def answer(inspect: Callable[[Settings, Question], Report]) -> int:
    """Read the question from standard input, and print the report; ends with the parent."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--die-with", type=int, help="pid of the parent; without, a fork ends by its lifeline")
    parent = parser.parse_args().die_with
    if parent is not None:
        die_with_parent(parent)
    hide_from_same_user()  # protects the database password
    print(json.dumps(inspect(load_settings(), json.load(sys.stdin))))  # noqa: T201 – the answer to our parent
    return 0
