"""gunicorn's configuration file: hooks that can't be passed as arguments."""

from collections.abc import Mapping

from gunicorn.arbiter import Arbiter

from app.host.privacy import hide_from_same_user
from app.host.process_options import die_with_parent
from config.metrics_directory import inherited_multiprocess_directory


def on_starting(arbiter: Arbiter) -> None:
    """Protect this process; the request processes are forks and inherit the protection."""
    hide_from_same_user()
    _reset_counters(arbiter.cfg.env)


def post_fork(arbiter: Arbiter, _worker: object) -> None:
    """Tie the request process to its master: a survivor would block the port for the next start."""
    die_with_parent(arbiter.pid)


def _reset_counters(environment: Mapping[str, str]) -> None:
    """Delete the counter files of a previous start, which must not be added to the current counts."""
    directory = inherited_multiprocess_directory(environment)
    if directory is None:
        return
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    for file in directory.glob("*.db"):
        file.unlink()
