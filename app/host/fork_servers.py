"""Where fork servers listen: one of each kind per data directory, which jobs in a sandbox do not see."""

import socket
from pathlib import Path

from trainyard.protocol.channel import short_address


def supervisors_socket(data_dir: Path) -> Path:
    """The address of the server that forks supervisors and preflights."""
    return data_dir / "run" / "supervisors.sock"


def agents_socket(data_dir: Path) -> Path:
    """The address of the server that forks rank agents, which fork ranks."""
    return data_dir / "run" / "agents.sock"


def is_listening(path: Path) -> bool:
    """Whether a server listens there; its child that waits ends by this, and another one is forked."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            with short_address(path) as address:
                probe.connect(address)
        except OSError:
            return False
    return True
