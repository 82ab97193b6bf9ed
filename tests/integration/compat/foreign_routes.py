"""Who may do what by the routes of foreign vocabularies: rows of the table that test_auth_matrix.py follows."""

from typing import Any, NamedTuple

from app.compat.openai.not_built import NOT_BUILT
from app.security.permissions import Role

OWN = "team-a"
# In rising order: a role may do whatever the roles to its left may.
RANKS = (Role.VIEWER, Role.USER, Role.ADMIN, Role.SUPER_ADMIN)
VIEWER, USER, ADMIN, SUPER = RANKS
MISSING = 404


class Row(NamedTuple):
    """``who`` None: open to every caller, with any key or none. ``foreign``: what an admin of another project gets.

    ``asks``: a key of role inference may do it, too, which may do nothing else.
    """

    who: Role | None
    answer: int = 200
    foreign: int | None = None  # None: the same as at home
    body: Any = None
    asks: bool = False


CYXWIZ_CONFIG = {
    "model_config": "/srv/models/base",
    "dataset_uri": "/srv/data/train.jsonl",
    "epochs": 1,
    "batch_size": 1,
}
RUNAI_TRAINING = {"name": "x", "projectId": "team-a", "clusterId": "c", "spec": {"command": "true"}}
MODELARTS, TAGGED = "/v2/<project_id>/training-jobs/<training_job_id>", "/v2/<project_id>/modelarts-training-job"
SEARCH = "/v2/<project_id>/training-jobs/<search_id>"
TEMPLATES = "/v2/<project_id>/training-jobs/autosearch/yaml-templates"
MODELARTS_JOB = {
    "kind": "job",
    "metadata": {"name": "NEW"},
    "algorithm": {"code_dir": "obs://team/src/", "boot_file": "obs://team/src/x.py"},
}
ASKED = {
    "chat/completions": {"model": "x", "messages": [{"role": "user", "content": "hello"}]},
    "completions": {"model": "x", "prompt": "hello"},
    "embeddings": {"model": "x", "input": "hello"},
    "rerank": {"model": "x", "query": "hello", "documents": ["a"]},
}
A_TAG = {"tags": [{"key": "team", "value": "a"}]}
NAMESPACE, IN_NAMESPACE = "/api/v1/namespaces/<namespace>", "/apis/ome.io/v1beta1/namespaces/<namespace>"
CLUSTER_RUNTIMES = "/apis/ome.io/v1beta1/clustertrainingruntimes"
OME_JOB = {
    "apiVersion": "ome.io/v1beta1",
    "kind": "TrainingJob",
    "metadata": {"name": "NEW"},
    "spec": {"runtimeRef": {"name": "pytorch-runtime"}, "trainer": {"command": ["true"]}},
}

BASE_MODEL = {
    "apiVersion": "ome.io/v1beta1",
    "kind": "BaseModel",
    "metadata": {"name": "NEW"},
    "spec": {"storage": {"storageUri": "/srv/models/tiny"}},
}

OPENAI, TUNING = "/openai/v1", "/openai/v1/fine_tuning/jobs"
GRADERS = f"{OPENAI}/fine_tuning/alpha/graders"
CHECKPOINTS = f"{OPENAI}/fine_tuning/checkpoints/<model>/permissions"
GRADER = {"type": "string_check", "operation": "eq", "input": "{{sample.output_text}}", "reference": "a"}
UPLOAD = {"filename": "a", "purpose": "user_data", "bytes": 5, "mime_type": "text/plain"}
NO_JOB = {"model": "nothing", "training_file": "file-x"}
NO_BATCH = {"input_file_id": "file-x", "endpoint": "/v1/embeddings", "completion_window": "24h"}


def _runtime(kind: str) -> dict[str, Any]:
    return {"apiVersion": "ome.io/v1beta1", "kind": kind, "metadata": {"name": "NEW"}, "spec": {}}


FOREIGN: dict[tuple[str, str], Row] = {
    ("POST", "/compat/cyxwiz/v1/jobs"): Row(USER, 201, body=CYXWIZ_CONFIG),
    ("GET", "/compat/cyxwiz/v1/jobs"): Row(VIEWER),
    ("GET", "/compat/cyxwiz/v1/jobs/<job_id>"): Row(VIEWER, foreign=MISSING),
    ("DELETE", "/compat/cyxwiz/v1/jobs/<job_id>"): Row(USER, 204, foreign=MISSING),
    ("GET", "/compat/cyxwiz/v1/jobs/<job_id>/progress"): Row(VIEWER, foreign=MISSING),
    ("GET", "/compat/cyxwiz/v1/jobs/<job_id>/report"): Row(VIEWER, foreign=MISSING),
    ("POST", "/compat/cyxwiz/v1/jobs/<job_id>/cancel"): Row(USER, 409, foreign=MISSING),
    ("POST", "/compat/cyxwiz/v1/jobs/<job_id>/pause"): Row(USER, 409, foreign=MISSING),
    ("POST", "/compat/cyxwiz/v1/jobs/<job_id>/resume"): Row(USER, 409, foreign=MISSING),
    ("GET", "/compat/cyxwiz/v1/nodes"): Row(VIEWER),
    ("GET", "/compat/cyxwiz/v1/messages.proto"): Row(None),
    ("GET", "/compat/cyxwiz/v1/openapi.json"): Row(None),
    ("POST", "/v2/<project_id>/training-jobs"): Row(USER, 201, foreign=MISSING, body=MODELARTS_JOB),
    ("GET", f"{MODELARTS}"): Row(VIEWER, foreign=MISSING),
    ("PUT", f"{MODELARTS}"): Row(USER, foreign=MISSING, body={"description": "x"}),
    ("DELETE", f"{MODELARTS}"): Row(USER, 202, foreign=MISSING),
    ("POST", f"{MODELARTS}/actions"): Row(USER, 409, foreign=MISSING, body={"action_type": "terminate"}),
    ("POST", "/v2/<project_id>/training-jobs/batch-delete"): Row(USER, foreign=MISSING, body={"jobs": []}),
    ("POST", "/v2/<project_id>/training-job-searches"): Row(VIEWER, foreign=MISSING, body={}),
    ("GET", "/v2/<project_id>/training-job-names"): Row(VIEWER, 400, foreign=MISSING),  # it has to be said which
    ("GET", f"{MODELARTS}/events"): Row(VIEWER, foreign=MISSING),
    ("GET", f"{MODELARTS}/stages"): Row(VIEWER, foreign=MISSING),
    ("GET", f"{MODELARTS}/tasks"): Row(VIEWER, foreign=MISSING),
    ("GET", f"{MODELARTS}/metrics/<task_id>"): Row(VIEWER, foreign=MISSING),
    ("GET", f"{MODELARTS}/logs/<task_id>"): Row(VIEWER, foreign=MISSING),
    ("GET", f"{MODELARTS}/tasks/<task_id>/logs/preview"): Row(VIEWER, foreign=MISSING),
    ("GET", f"{SEARCH}/autosearch-trials"): Row(VIEWER, foreign=MISSING),
    ("GET", f"{SEARCH}/autosearch-trials/<trial_name>"): Row(VIEWER, foreign=MISSING),
    ("POST", f"{SEARCH}/autosearch-trial-earlystop/<trial_name>"): Row(USER, 409, foreign=MISSING),
    ("GET", f"{SEARCH}/autosearch-parameter-analysis"): Row(VIEWER, 409, foreign=MISSING),  # it has too few trials
    ("GET", f"{SEARCH}/autosearch-parameter-analysis/<parameter_name>"): Row(VIEWER, foreign=MISSING),
    ("GET", "/v2/<project_id>/search-algorithms"): Row(VIEWER, foreign=MISSING),
    ("GET", TEMPLATES): Row(VIEWER, foreign=MISSING),
    ("GET", f"{TEMPLATES}/<algorithm_type>/<algorithm_name>"): Row(VIEWER, foreign=MISSING),
    ("GET", "/v2/<project_id>/training-job-flavors"): Row(VIEWER, foreign=MISSING),
    ("GET", "/v2/<project_id>/training-job-engines"): Row(VIEWER, foreign=MISSING),
    ("GET", "/v2/<project_id>/training-quotas"): Row(VIEWER, foreign=MISSING),
    ("PUT", "/v2/<project_id>/training-quotas"): Row(SUPER, foreign=MISSING, body={"quotas": []}),
    ("GET", f"{TAGGED}/<training_job_id>/tags"): Row(VIEWER, foreign=MISSING),
    ("POST", f"{TAGGED}/<training_job_id>/tags/create"): Row(USER, foreign=MISSING, body=A_TAG),
    ("DELETE", f"{TAGGED}/<training_job_id>/tags/delete"): Row(USER, foreign=MISSING, body=A_TAG),
    ("GET", f"{TAGGED}/tags"): Row(VIEWER, foreign=MISSING),
    ("POST", f"{TAGGED}/resource-instances/filter"): Row(VIEWER, foreign=MISSING, body={}),
    ("POST", f"{TAGGED}/resource-instances/count"): Row(VIEWER, foreign=MISSING, body={}),
    ("GET", "/v2/openapi.json"): Row(None),
    ("POST", "/api/v1/token"): Row(None, 401, body={"grantType": "app_token", "AppId": "x", "AppSecret": "x"}),
    ("POST", "/api/v1/workloads/trainings"): Row(USER, 202, foreign=MISSING, body=RUNAI_TRAINING),
    ("GET", "/api/v1/workloads/trainings/<workload_id>"): Row(VIEWER, foreign=MISSING),
    ("DELETE", "/api/v1/workloads/trainings/<workload_id>"): Row(USER, 204, foreign=MISSING),
    ("POST", "/api/v1/workloads/trainings/<workload_id>/suspend"): Row(USER, 409, foreign=MISSING),
    ("POST", "/api/v1/workloads/trainings/<workload_id>/resume"): Row(USER, 409, foreign=MISSING),
    ("POST", "/api/v1/workloads/distributed"): Row(USER, 202, foreign=MISSING, body=RUNAI_TRAINING),
    ("GET", "/api/v1/workloads/distributed/<distributed_id>"): Row(VIEWER, foreign=MISSING),
    ("DELETE", "/api/v1/workloads/distributed/<distributed_id>"): Row(USER, 204, foreign=MISSING),
    ("POST", "/api/v1/workloads/distributed/<distributed_id>/suspend"): Row(USER, 409, foreign=MISSING),
    ("POST", "/api/v1/workloads/distributed/<distributed_id>/resume"): Row(USER, 409, foreign=MISSING),
    ("GET", "/api/v1/workloads"): Row(VIEWER),
    ("POST", "/api/v1/workloads/batch"): Row(USER, body={"ids": ["x"], "action": "resume"}),
    ("GET", "/api/v1/workloads/count"): Row(VIEWER),
    ("GET", "/api/v1/workloads/<workload_id>"): Row(VIEWER, foreign=MISSING),
    ("GET", "/api/v1/workloads/<workload_id>/events"): Row(VIEWER, foreign=MISSING),
    ("GET", "/api/v1/workloads/<workload_id>/history"): Row(VIEWER, foreign=MISSING),
    ("GET", "/api/v1/workloads/<workload_id>/metrics"): Row(VIEWER, 400),  # it has to be said which, and of when
    ("GET", "/api/v1/workloads/<workload_id>/pods"): Row(VIEWER, foreign=MISSING),
    ("GET", "/api/v1/workload-priorities"): Row(VIEWER),
    ("GET", "/api/v1/org-unit/projects"): Row(VIEWER),
    ("GET", "/api/v1/org-unit/projects/<project_id>"): Row(VIEWER, foreign=MISSING),
    ("GET", "/api/v1/openapi.json"): Row(None),
    ("GET", "/api"): Row(None),
    ("GET", "/apis"): Row(None),
    ("GET", "/apis/ome.io"): Row(None),
    ("GET", "/apis/ome.io/v1beta1"): Row(None),
    ("GET", "/apis/ome.io/v1beta1/openapi.json"): Row(None),
    ("GET", "/api/v1"): Row(None),
    ("GET", "/openapi/v2"): Row(None),
    ("GET", "/version"): Row(None),
    ("GET", "/api/v1/namespaces"): Row(VIEWER),
    ("GET", NAMESPACE): Row(VIEWER, foreign=MISSING),
    ("GET", "/api/v1/pods"): Row(VIEWER),
    ("GET", f"{NAMESPACE}/pods"): Row(VIEWER, foreign=MISSING),
    ("GET", f"{NAMESPACE}/pods/<pod_name>"): Row(VIEWER, foreign=MISSING),
    ("GET", f"{NAMESPACE}/pods/<pod_name>/log"): Row(VIEWER, foreign=MISSING),
    ("GET", f"{NAMESPACE}/events"): Row(VIEWER, foreign=MISSING),
    ("GET", "/apis/ome.io/v1beta1/trainingjobs"): Row(VIEWER),
    ("GET", f"{IN_NAMESPACE}/trainingjobs"): Row(VIEWER, foreign=MISSING),
    ("POST", f"{IN_NAMESPACE}/trainingjobs"): Row(USER, 201, foreign=MISSING, body=OME_JOB),
    ("GET", f"{IN_NAMESPACE}/trainingjobs/<object_name>"): Row(VIEWER, foreign=MISSING),
    ("GET", f"{IN_NAMESPACE}/trainingjobs/<object_name>/status"): Row(VIEWER, foreign=MISSING),
    ("PUT", f"{IN_NAMESPACE}/trainingjobs/<object_name>"): Row(USER, 400, foreign=MISSING, body=OME_JOB),  # another one
    ("PATCH", f"{IN_NAMESPACE}/trainingjobs/<object_name>"): Row(USER, 415, foreign=MISSING, body={}),  # of no form
    ("DELETE", f"{IN_NAMESPACE}/trainingjobs/<object_name>"): Row(USER, foreign=MISSING),
    ("GET", f"{IN_NAMESPACE}/trainingruntimes"): Row(VIEWER, foreign=MISSING),
    ("POST", f"{IN_NAMESPACE}/trainingruntimes"): Row(USER, 201, foreign=MISSING, body=_runtime("TrainingRuntime")),
    ("GET", f"{IN_NAMESPACE}/trainingruntimes/<runtime_name>"): Row(VIEWER, foreign=MISSING),
    ("PUT", f"{IN_NAMESPACE}/trainingruntimes/<runtime_name>"): Row(
        USER, 400, foreign=MISSING, body=_runtime("TrainingRuntime")
    ),
    ("PATCH", f"{IN_NAMESPACE}/trainingruntimes/<runtime_name>"): Row(USER, 415, foreign=MISSING, body={}),
    ("DELETE", f"{IN_NAMESPACE}/trainingruntimes/<runtime_name>"): Row(USER, foreign=MISSING),
    ("GET", CLUSTER_RUNTIMES): Row(VIEWER),
    ("POST", CLUSTER_RUNTIMES): Row(SUPER, 201, body=_runtime("ClusterTrainingRuntime")),
    ("GET", f"{CLUSTER_RUNTIMES}/<cluster_runtime_name>"): Row(VIEWER),
    ("PUT", f"{CLUSTER_RUNTIMES}/<cluster_runtime_name>"): Row(SUPER, 400, body=_runtime("ClusterTrainingRuntime")),
    ("PATCH", f"{CLUSTER_RUNTIMES}/<cluster_runtime_name>"): Row(SUPER, 415, body={}),
    ("DELETE", f"{CLUSTER_RUNTIMES}/<cluster_runtime_name>"): Row(SUPER, 409),  # it is built in
    ("GET", f"{IN_NAMESPACE}/basemodels"): Row(VIEWER, foreign=MISSING),
    ("POST", f"{IN_NAMESPACE}/basemodels"): Row(USER, 201, foreign=MISSING, body=BASE_MODEL),
    ("GET", f"{IN_NAMESPACE}/basemodels/<model_name>"): Row(VIEWER, foreign=MISSING),
    ("PUT", f"{IN_NAMESPACE}/basemodels/<model_name>"): Row(USER, 400, foreign=MISSING, body=BASE_MODEL),
    ("PATCH", f"{IN_NAMESPACE}/basemodels/<model_name>"): Row(USER, 415, foreign=MISSING, body={}),
    ("DELETE", f"{IN_NAMESPACE}/basemodels/<model_name>"): Row(USER, foreign=MISSING),
    ("GET", f"{IN_NAMESPACE}/finetunedweights"): Row(VIEWER, foreign=MISSING),
    ("GET", f"{IN_NAMESPACE}/finetunedweights/<weights_name>"): Row(VIEWER, foreign=MISSING),
    ("GET", f"{OPENAI}/openapi.json"): Row(None),
    ("POST", f"{OPENAI}/files"): Row(USER, 415, body={}),  # it is not a form
    ("GET", f"{OPENAI}/files"): Row(VIEWER),
    ("GET", f"{OPENAI}/files/<file_id>"): Row(VIEWER, foreign=MISSING),
    ("DELETE", f"{OPENAI}/files/<file_id>"): Row(USER, foreign=MISSING),
    ("GET", f"{OPENAI}/files/<file_id>/content"): Row(VIEWER, foreign=MISSING),
    ("POST", f"{OPENAI}/uploads"): Row(USER, body=UPLOAD),
    ("POST", f"{OPENAI}/uploads/<upload_id>/parts"): Row(USER, 415, body={}),
    ("POST", f"{OPENAI}/uploads/<upload_id>/complete"): Row(USER, 400, foreign=MISSING, body={"part_ids": ["x"]}),
    ("POST", f"{OPENAI}/uploads/<upload_id>/cancel"): Row(USER, foreign=MISSING),
    ("GET", f"{OPENAI}/models"): Row(VIEWER, asks=True),
    ("GET", f"{OPENAI}/models/<path:model>"): Row(VIEWER, foreign=MISSING, asks=True),
    ("DELETE", f"{OPENAI}/models/<path:model>"): Row(USER, foreign=MISSING),
    ("POST", TUNING): Row(USER, 404, body=NO_JOB),
    ("GET", TUNING): Row(VIEWER),
    ("GET", f"{TUNING}/<job_id>"): Row(VIEWER, foreign=MISSING),
    ("POST", f"{TUNING}/<job_id>/cancel"): Row(USER, 409, foreign=MISSING),
    ("POST", f"{TUNING}/<job_id>/pause"): Row(USER, 409, foreign=MISSING),
    ("POST", f"{TUNING}/<job_id>/resume"): Row(USER, 409, foreign=MISSING),
    ("GET", f"{TUNING}/<job_id>/events"): Row(VIEWER, foreign=MISSING),
    ("GET", f"{TUNING}/<job_id>/checkpoints"): Row(VIEWER, foreign=MISSING),
    ("POST", f"{GRADERS}/validate"): Row(USER, body={"grader": GRADER}),
    ("POST", f"{GRADERS}/run"): Row(USER, body={"grader": GRADER, "model_sample": "a"}),
    ("POST", CHECKPOINTS): Row(SUPER, body={"project_ids": ["team-b"]}),
    ("GET", CHECKPOINTS): Row(SUPER),
    ("DELETE", f"{CHECKPOINTS}/<permission_id>"): Row(SUPER),
    ("POST", f"{OPENAI}/batches"): Row(USER, 404, body=NO_BATCH),
    ("GET", f"{OPENAI}/batches"): Row(VIEWER),
    ("GET", f"{OPENAI}/batches/<batch_id>"): Row(VIEWER, foreign=MISSING),
    ("POST", f"{OPENAI}/batches/<batch_id>/cancel"): Row(USER, foreign=MISSING),
    # Without a gateway.
    **{("POST", f"{OPENAI}/{path}"): Row(USER, 503, body=body, asks=True) for path, body in ASKED.items()},
    **{(method, OPENAI + path): Row(VIEWER, 501, asks=True) for method, path in NOT_BUILT},
}
