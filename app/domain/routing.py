"""Routing of a job's messages: admission queue, dispatch queue, broker priority."""

DEFAULT_PRIORITY = 5
HIGHEST_PRIORITY = 10
BROKER_STEPS = 10


def broker_priority(priority: int) -> int:
    """Our 0–10 (10 most urgent) as Celery-on-Redis priority 0–9, where 0 is served first."""
    return BROKER_STEPS - 1 - (priority * (BROKER_STEPS - 1)) // HIGHEST_PRIORITY


def admission_queue(queue: str) -> str:
    return f"jobs.{queue}"


def dispatch_queue(device_type: str, node: str) -> str:
    """`cpu.<node>` for CPU slots, `gpu.<type>.<node>` for anything else."""
    return f"cpu.{node}" if device_type == "cpu" else f"gpu.{device_type}.{node}"
