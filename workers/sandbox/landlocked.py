"""Becomes a command that reaches the files of its list alone, without capabilities and with a sandbox's filter.

Its arguments are the descriptor of a file with JSON ([[path, rights]]), `--` and the command.
"""

import json
import os
import sys
from pathlib import Path

from app.host.landlock import restrict_files
from app.host.process_options import drop_capabilities
from app.host.system_calls import filter_program, restrict


def main() -> None:
    _, descriptor, _, *command = sys.argv
    with open(int(descriptor), encoding="utf-8") as file:  # noqa: PTH123 – a descriptor
        rules = json.load(file)
    program = filter_program()
    restrict_files((Path(path), int(rights)) for path, rights in rules)
    # Root's would open the environment of every process in /proc. Landlock has seen to it that no exec gives them back.
    drop_capabilities()
    restrict(program)
    os.execvp(command[0], command)  # noqa: S606 – the command is ours
