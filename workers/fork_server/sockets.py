"""Where fork servers listen: one of each kind per data directory, which jobs in a sandbox do not see."""

from pathlib import Path


def supervisors_socket(data_dir: Path) -> Path:
    """The address of the server that forks supervisors."""
    return data_dir / "run" / "supervisors.sock"


def agents_socket(data_dir: Path) -> Path:
    """The address of the server that forks rank agents, which fork ranks."""
    return data_dir / "run" / "agents.sock"
