"""The run specification: what a node prepares for the ranks of one attempt, stored as spec.json."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from trainyard.protocol.role_instance import RoleInstance

Document = Mapping[str, Any]
_PARTS = ("gang", "image", "instances", "tasks")  # of a specification: not every one has them


@dataclass(frozen=True, kw_only=True)
class Gang:
    """The place of this node among those of an attempt on several nodes."""

    node_rank: int
    nodes: int
    local_ranks: int
    address: str  # where rank 0 listens, with `port`
    port: int
    interface: str  # this node's network interface to the others; "" when unknown


@dataclass(frozen=True, kw_only=True)
class ImageEnvironment:
    """How ranks start where their root is an image's.

    ``python`` is the command line of the node's own interpreter there, ``hooks`` the directory with the package that
    scripts import, ``environment`` what the image sets.
    """

    python: tuple[str, ...]
    hooks: str
    environment: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """One attempt on one node: everything resolved to local paths and typed values. Holds no secrets.

    `sources` follows the order of data_config.sources: for each its `location` as submitted, its local `files`
    (`path`, `name`, `size_bytes`, `sha256`) and the `sha256` over their digests. Without it (tests, local runs)
    each of `data_paths` is a source of one file. `reward_path` is the file that hyperparameter `reward` names, if any,
    `reward_sha256` its digest, and `reward_model_path` the reward model used instead. `adjustments` come from
    earlier attempts: `batch_halvings` after running out of memory, `learning_rate_factor` after the loss exploded.
    `inference` is the document's section of this name; `weights_path` the directory of the weights it uses, when they
    are another job's, `weights_sha256` what tells whether the model's files are those of earlier attempts, and
    `finished_shards` the numbers of the shards that earlier attempts have stored.
    `benchmark_files` are the local paths of code that benchmarks run, by its location in the document.
    `tokens_path` is a directory with the tokens of this data, stored by earlier ranks; empty if there are none.
    `script`, `arguments`, `command`, `directory`, `launcher` and `checkpoint_glob` are for CUSTOM jobs.
    A job with roles has the `instances` of this node, by rank, and `tasks`: of every role the places of all instances.
    """

    job_id: str = "local"
    attempt: int = 1
    node: str = ""
    name: str = ""
    run_dir: Path
    channel: str = ""  # path of the supervisor's socket
    framework: str
    training_type: str
    training_config: Document = field(default_factory=dict)
    data_config: Document = field(default_factory=dict)
    output_config: Document = field(default_factory=dict)
    hyperparameters: Document = field(default_factory=dict)
    model_path: str = ""
    tokenizer_path: str = ""
    data_paths: tuple[str, ...] = ()
    tokens_path: str = ""
    reward_path: str = ""
    reward_sha256: str = ""
    reward_model_path: str = ""
    inference: Document = field(default_factory=dict)
    weights_path: str = ""
    weights_sha256: str = ""
    ram_mb: int = 0  # of resource_config.limits; 0: no limit
    finished_shards: tuple[int, ...] = ()
    max_output_files: int = 0  # that the operator allows; 0: any number
    benchmark_files: Document = field(default_factory=dict)
    sources: tuple[Document, ...] = ()
    script: str = ""
    arguments: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    directory: str = ""  # where the ranks start
    device_type: str = "cpu"  # or cuda
    device_indices: tuple[int, ...] = ()
    device_uuids: tuple[str, ...] = ()  # empty when unknown
    gpu_memory_fraction: float = 1.0  # of each GPU, when other jobs have the rest
    world_size: int = 1
    threads_per_rank: int = 1
    launcher: str = ""
    checkpoint_glob: str = ""
    gpu_memory_percent: int | None = None  # None: all of it
    resume_checkpoint: str = ""
    resume_step: int = 0
    adjustments: Document = field(default_factory=dict)
    gang: Gang | None = None  # None: on one node
    image: ImageEnvironment | None = None  # None: with the node's programs
    packages_path: str = ""  # virtual environment of the ranks; empty: they have the node's packages
    locked: bool = False  # it doesn't start where its agent can't have Landlock
    proxy_port: int = 0  # of loopback, where an HTTP proxy leads out of the sandbox; 0: there is none
    resource_limits: Document = field(default_factory=dict)  # as workers.rank.resource_limits sets them
    keep_seconds: int = 0  # how long the sandbox stays after a rank has failed
    terminal: bool = False  # the output of the ranks is a terminal
    instances: tuple[RoleInstance, ...] = ()
    tasks: Document = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.sources:
            files = ({"path": path, "name": Path(path).name} for path in self.data_paths)
            sources = tuple({"location": file["path"], "files": [file]} for file in files)
            object.__setattr__(self, "sources", sources)

    @classmethod
    def from_document(cls, document: Document) -> "RunSpec":
        """Parse spec.json; unknown keys are ignored. Raises KeyError or TypeError when a required one is missing."""
        given = {each.name: document[each.name] for each in fields(cls) if document.get(each.name) is not None}
        typed = {name: tuple(value) for name, value in given.items() if isinstance(value, list)}
        parts: dict[str, Any] = {"gang": Gang(**given["gang"])} if "gang" in given else {}
        if "image" in given:
            parts["image"] = ImageEnvironment(**{**given["image"], "python": tuple(given["image"]["python"])})
        if "instances" in given:
            parts["instances"] = tuple(map(RoleInstance.from_document, given["instances"]))
        return cls(**{**given, **typed, **parts, "run_dir": Path(document["run_dir"])})

    @classmethod
    def read(cls, path: Path | str) -> "RunSpec":
        """Read spec.json. Raises OSError and ValueError."""
        return cls.from_document(json.loads(Path(path).read_text(encoding="utf-8")))

    def to_document(self) -> dict[str, Any]:
        """The content of spec.json."""
        values = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in _PARTS}
        parts = {"gang": self.gang, "image": self.image}
        roles = {"instances": [asdict(each) for each in self.instances], "tasks": dict(self.tasks)}
        return {
            **values,
            "run_dir": str(self.run_dir),
            **{name: asdict(part) for name, part in parts.items() if part is not None},
            **(roles if self.instances else {}),
        }

    @property
    def local_ranks(self) -> int:
        """Number of ranks on this node."""
        if self.instances:
            return sum(each.ranks for each in self.instances)
        return self.gang.local_ranks if self.gang is not None else self.world_size

    @property
    def node_rank(self) -> int:
        return self.gang.node_rank if self.gang is not None else 0

    @property
    def nodes(self) -> int:
        """Number of nodes of the attempt."""
        return self.gang.nodes if self.gang is not None else 1

    @property
    def first_rank(self) -> int:
        """The lowest rank on this node."""
        return self.instances[0].first_rank if self.instances else self.node_rank * self.local_ranks

    @property
    def leading_rank(self) -> int | None:
        """The lowest rank here that may save; None: the ranks of a built-in trainer are on other nodes."""
        if self.framework == "CUSTOM" or not self.instances:
            return self.first_rank
        return next((each.first_rank for each in self.instances if each.program == "train"), None)

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks on this node, in the order of their logs; those of roles need not follow each other."""
        if self.instances:
            return tuple(rank for each in self.instances for rank in each.global_ranks)
        return tuple(range(self.first_rank, self.first_rank + self.local_ranks))

    @property
    def names(self) -> dict[int, str]:
        """By rank of a job with roles: the instance that it belongs to."""
        return {rank: each.name for each in self.instances for rank in each.global_ranks}

    @property
    def ranks_of_scripts(self) -> set[int]:
        """The ranks here of scripts beside a built-in trainer."""
        custom = self.framework == "CUSTOM"
        return {
            rank for each in self.instances if each.program == "script" and not custom for rank in each.global_ranks
        }

    def beside_a_trainer(self) -> "RunSpec":
        """As a script beside a built-in trainer has it: with the job's model and data, but none of the trainer's
        settings, neither its halts nor its checkpoint.
        """
        return replace(self, hyperparameters={}, training_config={}, resume_checkpoint="", resume_step=0)

    @property
    def role_names(self) -> set[str]:
        """The roles that have instances on this node."""
        return {each.role for each in self.instances}

    @property
    def halts(self) -> tuple[int, ...]:
        """The steps at which a script halts, of the document's ``halt_at``."""
        return tuple((self.training_config.get("halt_at") or {}).get("at", ()))

    @property
    def agree_on_stops(self) -> bool:
        """Whether a script's ranks can agree on a step: through files, as ranks of one program on one node."""
        return self.nodes == 1 and not self.instances
