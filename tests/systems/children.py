"""Processes that a test's own process, or one that it started, has begun."""

import psutil


def child_that_runs(module: str, parent: int) -> psutil.Process:
    """The only child of the process ``parent`` that runs this module; others may have ended unreaped."""
    seen = psutil.process_iter(["ppid", "cmdline"])
    (found,) = (each for each in seen if each.info["ppid"] == parent and module in (each.info["cmdline"] or ()))
    return found
