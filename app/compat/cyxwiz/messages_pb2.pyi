import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class JobType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    JOB_TYPE_UNKNOWN: _ClassVar[JobType]
    TRAINING: _ClassVar[JobType]
    INFERENCE: _ClassVar[JobType]

class DeviceType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DEVICE_UNKNOWN: _ClassVar[DeviceType]
    CPU: _ClassVar[DeviceType]
    CUDA: _ClassVar[DeviceType]
    OPENCL: _ClassVar[DeviceType]

class Step(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STEP_UNKNOWN: _ClassVar[Step]
    RECEIVED: _ClassVar[Step]
    VALIDATE: _ClassVar[Step]
    DOWNLOAD: _ClassVar[Step]
    EXECUTE: _ClassVar[Step]
    UPLOAD: _ClassVar[Step]

class CompletionStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    COMPLETION_UNKNOWN: _ClassVar[CompletionStatus]
    SUCCESS: _ClassVar[CompletionStatus]
    FAILED: _ClassVar[CompletionStatus]
    CANCELLED: _ClassVar[CompletionStatus]
JOB_TYPE_UNKNOWN: JobType
TRAINING: JobType
INFERENCE: JobType
DEVICE_UNKNOWN: DeviceType
CPU: DeviceType
CUDA: DeviceType
OPENCL: DeviceType
STEP_UNKNOWN: Step
RECEIVED: Step
VALIDATE: Step
DOWNLOAD: Step
EXECUTE: Step
UPLOAD: Step
COMPLETION_UNKNOWN: CompletionStatus
SUCCESS: CompletionStatus
FAILED: CompletionStatus
CANCELLED: CompletionStatus

class JobConfig(_message.Message):
    __slots__ = ("job_id", "job_type", "model_config", "dataset_uri", "epochs", "batch_size", "learning_rate", "required_device", "min_memory_mb", "priority", "timeout_seconds", "max_output_size_mb")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_TYPE_FIELD_NUMBER: _ClassVar[int]
    MODEL_CONFIG_FIELD_NUMBER: _ClassVar[int]
    DATASET_URI_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    LEARNING_RATE_FIELD_NUMBER: _ClassVar[int]
    REQUIRED_DEVICE_FIELD_NUMBER: _ClassVar[int]
    MIN_MEMORY_MB_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    MAX_OUTPUT_SIZE_MB_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    job_type: JobType
    model_config: str
    dataset_uri: str
    epochs: int
    batch_size: int
    learning_rate: float
    required_device: DeviceType
    min_memory_mb: int
    priority: int
    timeout_seconds: int
    max_output_size_mb: int
    def __init__(self, job_id: _Optional[str] = ..., job_type: _Optional[_Union[JobType, str]] = ..., model_config: _Optional[str] = ..., dataset_uri: _Optional[str] = ..., epochs: _Optional[int] = ..., batch_size: _Optional[int] = ..., learning_rate: _Optional[float] = ..., required_device: _Optional[_Union[DeviceType, str]] = ..., min_memory_mb: _Optional[int] = ..., priority: _Optional[int] = ..., timeout_seconds: _Optional[int] = ..., max_output_size_mb: _Optional[int] = ...) -> None: ...

class ProgressUpdate(_message.Message):
    __slots__ = ("job_id", "progress", "current_epoch", "total_epochs", "metrics", "gpu_utilization", "memory_used_mb", "elapsed_seconds", "eta_seconds")
    class MetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    CURRENT_EPOCH_FIELD_NUMBER: _ClassVar[int]
    TOTAL_EPOCHS_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    GPU_UTILIZATION_FIELD_NUMBER: _ClassVar[int]
    MEMORY_USED_MB_FIELD_NUMBER: _ClassVar[int]
    ELAPSED_SECONDS_FIELD_NUMBER: _ClassVar[int]
    ETA_SECONDS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    progress: float
    current_epoch: int
    total_epochs: int
    metrics: _containers.ScalarMap[str, float]
    gpu_utilization: float
    memory_used_mb: int
    elapsed_seconds: int
    eta_seconds: int
    def __init__(self, job_id: _Optional[str] = ..., progress: _Optional[float] = ..., current_epoch: _Optional[int] = ..., total_epochs: _Optional[int] = ..., metrics: _Optional[_Mapping[str, float]] = ..., gpu_utilization: _Optional[float] = ..., memory_used_mb: _Optional[int] = ..., elapsed_seconds: _Optional[int] = ..., eta_seconds: _Optional[int] = ...) -> None: ...

class CompletionReport(_message.Message):
    __slots__ = ("job_id", "status", "model_hash", "model_uri", "final_metrics", "compute_time_ms", "gpu_time_ms", "average_gpu_util", "proof_of_compute", "error_message", "error_stack")
    class FinalMetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    MODEL_HASH_FIELD_NUMBER: _ClassVar[int]
    MODEL_URI_FIELD_NUMBER: _ClassVar[int]
    FINAL_METRICS_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    GPU_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    AVERAGE_GPU_UTIL_FIELD_NUMBER: _ClassVar[int]
    PROOF_OF_COMPUTE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ERROR_STACK_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    status: CompletionStatus
    model_hash: str
    model_uri: str
    final_metrics: _containers.ScalarMap[str, float]
    compute_time_ms: int
    gpu_time_ms: int
    average_gpu_util: float
    proof_of_compute: bytes
    error_message: str
    error_stack: str
    def __init__(self, job_id: _Optional[str] = ..., status: _Optional[_Union[CompletionStatus, str]] = ..., model_hash: _Optional[str] = ..., model_uri: _Optional[str] = ..., final_metrics: _Optional[_Mapping[str, float]] = ..., compute_time_ms: _Optional[int] = ..., gpu_time_ms: _Optional[int] = ..., average_gpu_util: _Optional[float] = ..., proof_of_compute: _Optional[bytes] = ..., error_message: _Optional[str] = ..., error_stack: _Optional[str] = ...) -> None: ...

class SubmitJobResponse(_message.Message):
    __slots__ = ("job_id", "status", "estimated_start_time")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    ESTIMATED_START_TIME_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    status: JobStatus.State
    estimated_start_time: _timestamp_pb2.Timestamp
    def __init__(self, job_id: _Optional[str] = ..., status: _Optional[_Union[JobStatus.State, str]] = ..., estimated_start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class JobStatus(_message.Message):
    __slots__ = ("job_id", "status", "progress", "current_node_id", "start_time", "end_time", "error", "metrics", "current_epoch", "step", "trainyard_job_id", "pending_reason", "config")
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATE_UNKNOWN: _ClassVar[JobStatus.State]
        PENDING: _ClassVar[JobStatus.State]
        ASSIGNED: _ClassVar[JobStatus.State]
        RUNNING: _ClassVar[JobStatus.State]
        PAUSED: _ClassVar[JobStatus.State]
        COMPLETED: _ClassVar[JobStatus.State]
        FAILED: _ClassVar[JobStatus.State]
        CANCELLED: _ClassVar[JobStatus.State]
    STATE_UNKNOWN: JobStatus.State
    PENDING: JobStatus.State
    ASSIGNED: JobStatus.State
    RUNNING: JobStatus.State
    PAUSED: JobStatus.State
    COMPLETED: JobStatus.State
    FAILED: JobStatus.State
    CANCELLED: JobStatus.State
    class MetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    CURRENT_NODE_ID_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    CURRENT_EPOCH_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    TRAINYARD_JOB_ID_FIELD_NUMBER: _ClassVar[int]
    PENDING_REASON_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    status: JobStatus.State
    progress: float
    current_node_id: str
    start_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    error: Error
    metrics: _containers.ScalarMap[str, float]
    current_epoch: int
    step: Step
    trainyard_job_id: str
    pending_reason: str
    config: JobConfig
    def __init__(self, job_id: _Optional[str] = ..., status: _Optional[_Union[JobStatus.State, str]] = ..., progress: _Optional[float] = ..., current_node_id: _Optional[str] = ..., start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., error: _Optional[_Union[Error, _Mapping]] = ..., metrics: _Optional[_Mapping[str, float]] = ..., current_epoch: _Optional[int] = ..., step: _Optional[_Union[Step, str]] = ..., trainyard_job_id: _Optional[str] = ..., pending_reason: _Optional[str] = ..., config: _Optional[_Union[JobConfig, _Mapping]] = ...) -> None: ...

class ListJobsResponse(_message.Message):
    __slots__ = ("jobs", "next_page_token", "total_count")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    TOTAL_COUNT_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[JobStatus]
    next_page_token: str
    total_count: int
    def __init__(self, jobs: _Optional[_Iterable[_Union[JobStatus, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., total_count: _Optional[int] = ...) -> None: ...

class CancelJobRequest(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class PauseRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ResumeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DeviceInfo(_message.Message):
    __slots__ = ("type", "name", "memory_mb", "in_use")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MB_FIELD_NUMBER: _ClassVar[int]
    IN_USE_FIELD_NUMBER: _ClassVar[int]
    type: DeviceType
    name: str
    memory_mb: int
    in_use: bool
    def __init__(self, type: _Optional[_Union[DeviceType, str]] = ..., name: _Optional[str] = ..., memory_mb: _Optional[int] = ..., in_use: _Optional[bool] = ...) -> None: ...

class NodeInfo(_message.Message):
    __slots__ = ("node_id", "status", "devices", "cpu_cores", "memory_mb", "active_jobs", "max_concurrent", "reputation", "score", "last_heartbeat")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    CPU_CORES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MB_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_JOBS_FIELD_NUMBER: _ClassVar[int]
    MAX_CONCURRENT_FIELD_NUMBER: _ClassVar[int]
    REPUTATION_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    LAST_HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    status: str
    devices: _containers.RepeatedCompositeFieldContainer[DeviceInfo]
    cpu_cores: int
    memory_mb: int
    active_jobs: int
    max_concurrent: int
    reputation: float
    score: float
    last_heartbeat: _timestamp_pb2.Timestamp
    def __init__(self, node_id: _Optional[str] = ..., status: _Optional[str] = ..., devices: _Optional[_Iterable[_Union[DeviceInfo, _Mapping]]] = ..., cpu_cores: _Optional[int] = ..., memory_mb: _Optional[int] = ..., active_jobs: _Optional[int] = ..., max_concurrent: _Optional[int] = ..., reputation: _Optional[float] = ..., score: _Optional[float] = ..., last_heartbeat: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ListNodesResponse(_message.Message):
    __slots__ = ("nodes", "next_page_token", "total_count")
    NODES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    TOTAL_COUNT_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedCompositeFieldContainer[NodeInfo]
    next_page_token: str
    total_count: int
    def __init__(self, nodes: _Optional[_Iterable[_Union[NodeInfo, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., total_count: _Optional[int] = ...) -> None: ...

class FieldViolation(_message.Message):
    __slots__ = ("field", "description")
    FIELD_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    field: str
    description: str
    def __init__(self, field: _Optional[str] = ..., description: _Optional[str] = ...) -> None: ...

class Error(_message.Message):
    __slots__ = ("code", "message", "details")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    details: _containers.RepeatedCompositeFieldContainer[FieldViolation]
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., details: _Optional[_Iterable[_Union[FieldViolation, _Mapping]]] = ...) -> None: ...
