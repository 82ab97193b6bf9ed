"""An instance of a role in the run specification: what runs in one place of a job whose processes differ."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True, kw_only=True)
class RoleInstance:
    """One of ``count`` copies of a role: its place among all ranks, its program and its devices.

    Its world are the ranks that torchrun's variables count: those of its role, of several roles, or its own. There the
    instance has the number ``node_rank`` of ``nodes``; None: those within its role. ``address`` and ``port`` are those
    where the world's rank 0 listens, in the instance ``leader_index`` of the role ``leader``; "": of its own role.
    ``max_restarts``: how often the agent starts it again alone; 0 for roles that fail with their job.
    ``program``: script, or the part of a built-in trainer that it is; ``rollouts``: the role that completes prompts for
    it.
    """

    role: str
    index: int
    count: int
    first_rank: int  # of all ranks of the attempt
    ranks: int
    role_first_rank: int  # of the ranks of its world
    role_world_size: int  # ranks of its world
    node_rank: int | None = None
    nodes: int | None = None
    leader: str = ""
    leader_index: int = 0
    program: str = "script"
    rollouts: str = ""
    script: str = ""
    arguments: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    directory: str = ""
    packages_path: str = ""
    device_type: str = "cpu"  # or cuda
    device_indices: tuple[int, ...] = ()
    device_uuids: tuple[str, ...] = ()
    threads_per_rank: int = 1
    address: str = ""
    port: int = 0
    depends_on: tuple[str, ...] = ()
    max_restarts: int = 0
    sidecar: bool = False

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "RoleInstance":
        """Parse its part of spec.json; unknown keys are ignored. Raises TypeError when a required one is missing."""
        given: dict[str, Any] = {each.name: document[each.name] for each in fields(cls) if each.name in document}
        lists = {name: tuple(value) for name, value in given.items() if isinstance(value, list)}
        return cls(**given | lists)

    @property
    def completes_prompts(self) -> bool:
        """Whether its ranks are rollouts of a built-in trainer."""
        return self.program == "rollout"

    @property
    def name(self) -> str:
        """As messages name it."""
        return f"{self.role} {self.index}"

    @property
    def global_ranks(self) -> range:
        """Its ranks, as logs number them."""
        return range(self.first_rank, self.first_rank + self.ranks)
