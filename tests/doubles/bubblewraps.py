"""A machine without bubblewrap, and one where it may not make namespaces, as programs find it on their PATH."""

import os
from pathlib import Path

REFUSAL = "bwrap: No permissions to create new namespace, likely because the kernel does not allow non-privileged users"


def path_without(directory: Path, *names: str) -> str:
    """A PATH with all programs of this one but those of these names."""
    directory.mkdir()
    for place in filter(Path.is_dir, map(Path, os.get_exec_path())):
        for program in place.iterdir():
            link = directory / program.name
            if program.name not in names and not link.is_symlink():
                link.symlink_to(program)
    return str(directory)


def put_program(directory: Path, name: str, script: str) -> Path:
    """A program of a few lines of shell."""
    program = directory / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return program


def put_forbidden_bubblewrap(directory: Path) -> None:
    """One that says what bubblewrap says where user namespaces are forbidden."""
    put_program(directory, "bwrap", f"echo '{REFUSAL}' >&2; exit 1")
