"""The job document as a tree of typed sections, with the default of every field."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from app.domain.routing import DEFAULT_PRIORITY
from app.domain.spec.image import NO_IMAGE, Image, RegistryLogin
from app.domain.spec.inference import TRAINING, Inference, Requirement
from app.domain.spec.interactive import NOT_INTERACTIVE, InteractiveConfig
from app.domain.spec.packages import Packages
from app.domain.spec.roles import JobRole
from app.domain.spec.section import Section

STOP, ROLLBACK = "stop", "rollback"  # OnDivergence.action
STEPS, EPOCHS = "steps", "epochs"  # HaltAt.unit
END, CHECKPOINT, BEST = "end", "checkpoint", "best"  # PlannedEvaluation.on
MLFLOW, TRACKIO, WANDB = "mlflow", "trackio", "wandb"  # Tracker.kind
ONLINE, OFFLINE = "online", "offline"  # Tracker.mode
# Mount.type: an input of the job, its code, its outputs, a directory that is empty at the start of an attempt, files of
# the document, or a volume claim of the project
DATA, MODEL, CODE, OUTPUT, EMPTY, MEMORY = ("data", "model", "code", "output", "empty", "memory")
FILES, CLAIM = "files", "claim"
MOUNT_TYPES = (DATA, MODEL, CODE, OUTPUT, EMPTY, MEMORY, FILES, CLAIM)


@dataclass(frozen=True, kw_only=True)
class Located(Section):
    """A section that names a place, and how it is opened."""

    credentials: Mapping[str, str] = field(default_factory=dict, repr=False)
    storage_options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class BaseModel(Located):
    """``job_id``: the job whose result the training continues: a whole model where ``model_id`` is none, else an
    adapter for that model.
    """

    model_id: str = ""
    job_id: str | None = None
    revision: str | None = None
    source: str | None = None
    tokenizer_id: str | None = None
    dtype: str = "auto"
    trust_remote_code: bool = False
    from_config: bool | Mapping[str, Any] = False
    model_kwargs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Distributed(Section):
    world_size: int | None = None
    backend: str | None = None
    strategy: str | None = None
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Framework(Section):
    type: str = ""
    config: Mapping[str, str] = field(default_factory=dict)
    distributed: Distributed = Distributed()
    custom_script_path: str | None = None
    custom_arguments: tuple[str, ...] = ()
    custom_command: tuple[str, ...] = ()
    custom_code_dir: str | None = None
    custom_code_credentials: Mapping[str, str] = field(default_factory=dict, repr=False)  # of a Git repository
    custom_retry_on_error: bool = False


@dataclass(frozen=True, kw_only=True)
class Evaluation(Section):
    strategy: str = "no"
    steps: int | None = None


@dataclass(frozen=True, kw_only=True)
class OnDivergence(Section):
    """``rollback``: back to the last checkpoint with a finite loss, ``max_rollbacks`` times, each time with the
    learning rate multiplied by ``learning_rate_factor``.
    """

    action: str = STOP
    learning_rate_factor: float = 0.5
    max_rollbacks: int = 2


@dataclass(frozen=True, kw_only=True)
class HaltAt(Section):
    """Amounts of training at which the run evaluates, saves a checkpoint and stops; ascending, each once."""

    unit: str = STEPS
    at: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PlannedBenchmark(Section):
    """A benchmark as users write it: with the records themselves, where `inference.Benchmark` has their index."""

    name: str = ""
    dataset: "Source | None" = None
    num_samples: int | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """A dataset may be a path alone: the job of a sweep is read before the schema makes a source of it."""
        is_path = isinstance(values, dict) and isinstance(values.get("dataset"), str)
        return super().from_json({**values, "dataset": {"path": values["dataset"]}} if is_path else values)


@dataclass(frozen=True, kw_only=True)
class PlannedResources(Section):
    """Those fields of `ResourceConfig` that a planned evaluation has."""

    gpu_count: int = 1
    device_type: str = "auto"
    gpu_type: str | tuple[str, ...] | None = None
    gpu_memory_min_mb: int = 0
    gpu_fraction: float | None = None
    cpu_cores: int = 0
    ram_min_mb: int = 0
    required_node_labels: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PlannedEvaluation(Section):
    """Benchmarks of the result, of each checkpoint, or of each checkpoint that is the best so far."""

    on: str = END
    benchmarks: tuple[PlannedBenchmark, ...] = ()
    require: tuple[Requirement, ...] = ()
    resource_config: PlannedResources | None = None  # None: one device of the kind that the training has
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class TrainingConfig(Section):
    training_type: str = ""
    base_model: BaseModel = BaseModel()
    framework: Framework = Framework()
    hyperparameters: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    resume_from_checkpoint: str | None = None
    max_retries: int = 3
    retry_on_hang: bool = True
    priority: int = DEFAULT_PRIORITY
    evaluation: Evaluation | None = None
    evaluations: tuple[PlannedEvaluation, ...] = ()
    on_divergence: OnDivergence = OnDivergence()
    halt_at: HaltAt | None = None
    warm: bool = True
    packages: Packages | None = None
    grader: Mapping[str, Any] = field(default_factory=dict)  # RLHF: OpenAI's form, in place of hyperparameter reward


@dataclass(frozen=True, kw_only=True)
class Sampling(Section):
    fraction: float | None = None
    count: int | None = None
    seed: int | None = None


@dataclass(frozen=True, kw_only=True)
class Filter(Section):
    column: str = ""
    op: str = ""
    value: Any = None


@dataclass(frozen=True, kw_only=True)
class Source(Located):
    path: str = ""
    type: str | None = None
    split: str | None = None
    format: str | None = None
    columns: tuple[str, ...] = ()
    filters: tuple[Filter, ...] = ()
    sampling: Sampling | None = None
    weight: float | None = None


@dataclass(frozen=True, kw_only=True)
class Preprocess(Section):
    tokenizer_config: Mapping[str, Any] = field(default_factory=dict)
    add_bos_token: bool | None = None
    add_eos_token: bool | None = None
    padding: str = "longest"
    truncation: bool = True
    chat_template: str | None = None
    field_mapping: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class DataConfig(Section):
    sources: tuple[Source, ...] = ()
    preprocess: Preprocess = Preprocess()
    max_seq_length: int = 1024
    batch_size: int = 8
    gradient_accumulation_steps: int = 1
    num_workers: int = 0
    pin_memory: bool | None = None
    validation_split: float = 0.0
    seed: int = 42
    streaming: bool = False
    shuffle_buffer: int = 10_000


@dataclass(frozen=True, kw_only=True)
class ResourceLimits(Section):
    """What the job may use on each node; 0: no limit of its own."""

    ram_mb: int = 0
    cpu_cores: float = 0.0
    processes: int = 0
    storage_mb: int = 0
    shm_mb: int = 0
    open_files: int = 0
    stack_mb: int = 0
    locked_mb: int = 0
    read_mb_per_second: int = 0
    write_mb_per_second: int = 0
    reads_per_second: int = 0
    writes_per_second: int = 0
    required: bool = True  # False: nodes that can't hold them run the job without

    @property
    def need_control_groups(self) -> bool:
        return bool(self.ram_mb or self.cpu_cores or self.processes)

    @property
    def bind_reads(self) -> bool:
        return bool(self.read_mb_per_second or self.reads_per_second)

    @property
    def bind_writes(self) -> bool:
        return bool(self.write_mb_per_second or self.writes_per_second)


@dataclass(frozen=True, kw_only=True)
class MountedFile(Section):
    """A small file of the document: configuration, or a secret."""

    name: str = ""
    content: str = field(default="", repr=False)


@dataclass(frozen=True, kw_only=True)
class Mount(Section):
    """A path at which a script finds what it needs; everything else of a job lies in its run directory."""

    path: str = ""
    type: str = ""  # one of MOUNT_TYPES
    source: int = 0  # index in data_config.sources, for type data
    sub_path: str = ""  # a part of the input, code, output or claim; one of files
    size_mb: int = 0  # for type memory, 0: half of the machine's memory; for types claim and empty, 0: no limit
    files: tuple[MountedFile, ...] = ()  # for type files
    mode: str = ""  # for type files: their permissions, as octal digits; empty: 0400
    claim: str = ""  # its name, for type claim
    read_only: bool = False  # for type claim
    create: bool = False  # for type claim: make it where it does not exist
    required: bool = True  # False: nodes without a sandbox run the job without the mount


@dataclass(frozen=True, kw_only=True)
class ProcessUser(Section):
    """User and group IDs of a job's processes inside their sandbox; outside they have those of the node worker."""

    uid: int | None = None
    gid: int | None = None
    required: bool = True  # False: nodes without a sandbox run the job as the worker's user


@dataclass(frozen=True, kw_only=True)
class ResourceConfig(Section):
    gpu_count: int = 1
    gpu_type: str | tuple[str, ...] | None = None
    gpu_memory_min_mb: int = 0
    gpu_fraction: float | None = None
    gpu_memory_request_mb: int = 0
    mig_profile: str | None = None
    cpu_cores: int = 0
    ram_min_mb: int = 0
    storage_min_mb: int = 0
    limits: ResourceLimits = ResourceLimits()
    mounts: tuple[Mount, ...] = ()
    image: Image = NO_IMAGE
    registry_logins: tuple[RegistryLogin, ...] = ()
    user: ProcessUser = ProcessUser()
    network: str = "none"
    device_type: str = "auto"
    node_count: int = 1
    required_node_labels: tuple[str, ...] = ()
    forbidden_node_labels: tuple[str, ...] = ()
    node_affinity: tuple[str, ...] = ()
    node_anti_affinity: tuple[str, ...] = ()
    force_fit: bool = False  # accept a training whose memory estimate no device has


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig(Section):
    save_strategy: str = "steps"
    save_steps: int = 500
    save_epochs: int = 1  # set by the supervisor for save_strategy epoch
    save_total_limit: int = 3
    save_at: tuple[int, ...] = ()
    metric_for_best_model: str | None = None
    greater_is_better: bool | None = None
    save_on_each_node: bool = False
    resume_from_best: bool = False


@dataclass(frozen=True, kw_only=True)
class OutputConfig(Located):
    output_model_name: str | None = None
    output_path: str | None = None
    log_path: str | None = None
    max_output_size_mb: int | None = None
    checkpoint: CheckpointConfig = CheckpointConfig()
    push_to_hub: bool = False
    hub_repo_id: str | None = None
    hub_token: str | None = field(default=None, repr=False)
    hub_private: bool = True
    export_format: str | None = None
    merge_lora: bool = False


@dataclass(frozen=True, kw_only=True)
class SchedulingConfig(Section):
    queue: str = "default"
    priority: int = DEFAULT_PRIORITY
    preemptible: bool = False
    on_preemption: Literal["terminate", "requeue"] = "terminate"
    min_runtime_seconds: int = 0
    max_runtime_seconds: int | None = None
    wait_for_node: bool = False
    required_capabilities: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Tracker(Section):
    """A service of the user's that receives the job's metrics; ``username``: the token is a password."""

    kind: str = ""
    mode: Literal["online", "offline"] | None = None  # of W&B; offline: a file that its owner uploads
    url: str | None = None
    experiment: str | None = None
    entity: str | None = None  # of W&B: the user or team that owns the project
    run_name: str | None = None
    tags: tuple[str, ...] = ()  # of W&B
    username: str | None = None
    token: str | None = field(default=None, repr=False)

    @property
    def is_offline(self) -> bool:
        """Whether nothing is sent: the run is a file among the job's artifacts."""
        return self.mode == OFFLINE


@dataclass(frozen=True, kw_only=True)
class JobDocument(Section):
    name: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    training_config: TrainingConfig = TrainingConfig()
    data_config: DataConfig = DataConfig()
    resource_config: ResourceConfig = ResourceConfig()
    output_config: OutputConfig = OutputConfig()
    scheduling_config: SchedulingConfig = SchedulingConfig()
    tracking: tuple[Tracker, ...] = ()
    interactive_config: InteractiveConfig = NOT_INTERACTIVE
    kind: str = TRAINING  # or another of inference.KINDS
    inference: Inference | None = None  # of all other kinds
    tasks: tuple[JobRole, ...] = ()  # the roles of a job whose processes differ
