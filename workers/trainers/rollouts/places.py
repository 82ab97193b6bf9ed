"""Where rollouts listen, from the environment that the platform gives to the ranks of roles."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROLLOUT_ROLE = "TRAINYARD_ROLLOUT_ROLE"  # in a rank that trains: whom it asks for completions


@dataclass(frozen=True)
class InstanceAddress:
    """Where the first rank of an instance listens; its other ranks choose ports, which the first one says."""

    role: str
    index: int
    address: str
    port: int

    def __str__(self) -> str:
        return f"{self.role} {self.index} at {self.address}:{self.port}"


def own_place(environment: Mapping[str, str]) -> InstanceAddress:
    """That of this rank's instance."""
    index = int(environment["TRAINYARD_TASK_INDEX"])
    return _places(environment, environment["TRAINYARD_ROLE"])[index]


def places_to_ask(environment: Mapping[str, str]) -> list[InstanceAddress]:
    """Those of the job's rollouts; none: the training makes its completions itself."""
    role = environment.get(ROLLOUT_ROLE, "")
    return _places(environment, role) if role else []


def secret(environment: Mapping[str, str]) -> bytes:
    """What only ranks of this attempt know."""
    return environment["TRAINYARD_JOB_SECRET"].encode()


def port_file(directory: Path, place: InstanceAddress, local_rank: int) -> Path:
    """Where a rank writes its port for the first one of its instance."""
    return directory / "rollouts" / f"{place.role}-{place.index}-{local_rank}.port"


def _places(environment: Mapping[str, str], role: str) -> list[InstanceAddress]:
    found = [
        InstanceAddress(role, int(each["index"]), str(each["address"]), int(each["port"]))
        for each in json.loads(environment["TRAINYARD_TASKS"])[role]
    ]
    return sorted(found, key=lambda place: place.index)
