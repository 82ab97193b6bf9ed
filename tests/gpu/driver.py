"""What the driver says of the first GPU, asked without our own code."""

import os
import subprocess


def asked(fields: str) -> list[str]:
    """The values of nvidia-smi --query-gpu for the GPU with index 0."""
    command = ["nvidia-smi", "-i", "0", f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout
    return [value.strip() for value in answer.strip().split(",")]


def memory_used_mb() -> int:
    return int(asked("memory.used")[0])


def computing_pids() -> set[int]:
    """The processes that have a context on any GPU, but for that of the tests."""
    command = ["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout
    return {int(line) for line in answer.split()} - {os.getpid()}
