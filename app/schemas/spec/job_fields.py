"""How each field of a native job document is handled."""

from app.domain.spec.role_documents import RESOURCES as OF_INSTANCES
from app.schemas.spec.field_verdicts import Table, acted_on, warned
from app.schemas.spec.resource_config import OF_RESOURCES

_MODEL, _FRAMEWORK = "training_config.base_model", "training_config.framework"
_PACKAGES = "training_config.packages"
_SOURCES, _PREPROCESS = "data_config.sources", "data_config.preprocess"
_RESOURCES, _SCHEDULING = "resource_config", "scheduling_config"
_OUTPUT, _CHECKPOINT = "output_config", "output_config.checkpoint"
_CREDENTIALS = acted_on(
    "used for this location only; stored encrypted, shown as ***; keys that its scheme does not accept are 400"
)
_OPTIONS = acted_on("region and service of this place; keys that its scheme does not take are 400")

_TRAINING: Table = {
    "training_config.training_type": acted_on("selects the trainer; an unsupported pair of framework and type is 400"),
    f"{_MODEL}.model_id": acted_on(
        "the model to load, with the user's permissions for scaidrive:// and scaiatlas://; an unreadable one is "
        "refused or fails the job early"
    ),
    "training_config.base_model.from_config": acted_on(
        "trains from scratch with weights initialized from data_config.seed; HF_TRAINER only, others are 400"
    ),
    "training_config.base_model.revision": acted_on("the branch, tag or commit of a hub model; 400 for other models"),
    f"{_MODEL}.job_id": acted_on("the job whose result is trained further; one without a usable result is 409"),
    f"{_MODEL}.source": acted_on("selects the hub or a local path; a contradiction to model_id is 400"),
    f"{_MODEL}.tokenizer_id": acted_on("the tokenizer to load and export"),
    f"{_MODEL}.dtype": acted_on("the precision of the weights; one that the framework does not support is 400"),
    f"{_MODEL}.credentials": _CREDENTIALS,
    f"{_MODEL}.storage_options": _OPTIONS,
    f"{_MODEL}.trust_remote_code": acted_on("runs the model's own code, in the sandbox"),
    f"{_MODEL}.model_kwargs": acted_on("changes the model's configuration; unknown names are 400"),
    f"{_FRAMEWORK}.type": acted_on("selects the training framework"),
    f"{_FRAMEWORK}.config": acted_on(
        "options of DEEPSPEED, FSDP and MEGATRON, arguments of HF_TRAINER's Trainer, and any options of a CUSTOM "
        "script; unknown ones are 400 with the list of known ones"
    ),
    f"{_FRAMEWORK}.distributed.world_size": acted_on("checked: a value other than the number of ranks is 400"),
    f"{_FRAMEWORK}.distributed.backend": acted_on(
        "checked: nccl on GPUs, gloo on CPU slots; gloo on GPUs and others are 400, nccl on CPU slots gives a warning; "
        "passed to a CUSTOM script"
    ),
    f"{_FRAMEWORK}.distributed.strategy": acted_on(
        "checked: a strategy of another framework is 400 and names that framework; any value for a CUSTOM script"
    ),
    f"{_FRAMEWORK}.distributed.config": acted_on("num_proc_per_node; other names are 400, except for a CUSTOM script"),
    f"{_FRAMEWORK}.custom_script_path": acted_on("the script to run"),
    f"{_FRAMEWORK}.custom_arguments": acted_on("the script's arguments"),
    f"{_FRAMEWORK}.custom_command": acted_on("the program to run, with its arguments"),
    f"{_FRAMEWORK}.custom_code_dir": acted_on("the code directory of the ranks, and their working directory"),
    f"{_FRAMEWORK}.custom_code_credentials": acted_on(
        "sent to the repository of custom_code_dir alone; stored encrypted, shown as ***; with other code 400"
    ),
    f"{_FRAMEWORK}.custom_retry_on_error": acted_on("retries a script that fails"),
    "training_config.hyperparameters": acted_on("passed to the trainer; unknown names and invalid values are 400"),
    "training_config.environment": acted_on("environment variables of the ranks; names that the platform sets are 400"),
    "training_config.resume_from_checkpoint": acted_on("the checkpoint to start the first attempt from"),
    "training_config.max_retries": acted_on("the maximum number of retries after failures"),
    "training_config.priority": acted_on("the priority in the queue, unless scheduling_config.priority is set"),
    "training_config.evaluation.strategy": acted_on("when to evaluate"),
    "training_config.evaluation.steps": acted_on("the evaluation interval, with strategy steps"),
    "training_config.on_divergence.action": acted_on("stops or rolls back a diverging training"),
    "training_config.retry_on_hang": acted_on("false: a hang fails the job at once"),
    "training_config.on_divergence.learning_rate_factor": acted_on("lowers the learning rate at a rollback"),
    "training_config.on_divergence.max_rollbacks": acted_on("the maximum number of rollbacks before the job fails"),
    "training_config.halt_at.unit": acted_on("what the amounts count"),
    "training_config.halt_at.at": acted_on(
        "pauses the job at each of these amounts, with a checkpoint; amounts that do not ascend are 400"
    ),
    "training_config.grader": acted_on(
        "judges completions in place of the hyperparameter reward; fields that are no grader's are 400"
    ),
    f"{_PACKAGES}.requirements": acted_on("installed; one that no index has fails the job, malformed ones are 422"),
    f"{_PACKAGES}.requirements_file": acted_on(
        "read on the node, and installed; a path that leads out of the code is 400"
    ),
    f"{_PACKAGES}.requirements_file_required": acted_on("whether a job whose code has no such file fails"),
    f"{_PACKAGES}.lock": acted_on(
        "exactly these files are installed; another hash fails the job, a line without is 400"
    ),
    f"{_PACKAGES}.python": acted_on("the ranks' interpreter; the job runs on a node that has this version"),
    f"{_PACKAGES}.index_url": acted_on("where packages come from; a private address, or one with credentials, is 400"),
    f"{_PACKAGES}.allow_source_builds": acted_on("whether packages without wheels are built from their sources"),
    "training_config.warm": acted_on("false: agent and ranks are started as new processes instead of forked"),
}

_DATA: Table = {
    f"{_SOURCES}.path": acted_on("the location to read; one outside the allowed roots is 400"),
    f"{_SOURCES}.type": acted_on("checked: a contradiction to the path is 400"),
    f"{_SOURCES}.split": acted_on("the purpose of the records, and the selected rows"),
    f"{_SOURCES}.format": acted_on("the file format"),
    f"{_SOURCES}.columns": acted_on("the columns to keep"),
    f"{_SOURCES}.filters.column": acted_on("the column to filter by"),
    f"{_SOURCES}.filters.op": acted_on("the filter's operator"),
    f"{_SOURCES}.filters.value": acted_on("the filter's operand"),
    f"{_SOURCES}.sampling.fraction": acted_on("keeps a fraction of the records"),
    f"{_SOURCES}.sampling.count": acted_on("keeps this number of records"),
    f"{_SOURCES}.sampling.seed": acted_on("the random seed of the selection"),
    f"{_SOURCES}.credentials": _CREDENTIALS,
    f"{_SOURCES}.storage_options": _OPTIONS,
    f"{_SOURCES}.weight": acted_on("the source's share of an epoch"),
    f"{_PREPROCESS}.tokenizer_config": acted_on("changes the tokenizer; unknown names are 400"),
    f"{_PREPROCESS}.add_bos_token": acted_on("starts records with BOS"),
    f"{_PREPROCESS}.add_eos_token": acted_on("ends records with EOS"),
    f"{_PREPROCESS}.padding": acted_on("pads batches"),
    f"{_PREPROCESS}.truncation": acted_on(
        "truncates records that are too long, or fails the job before it uses a device"
    ),
    f"{_PREPROCESS}.chat_template": acted_on("renders messages, and is exported with the tokenizer"),
    f"{_PREPROCESS}.field_mapping": acted_on("maps fields to columns"),
    "data_config.max_seq_length": acted_on("the maximum sequence length"),
    "data_config.batch_size": acted_on("records per device and forward pass"),
    "data_config.gradient_accumulation_steps": acted_on("forward passes per optimizer step"),
    "data_config.num_workers": acted_on("data loader processes"),
    "data_config.pin_memory": acted_on("page-locked memory for copies to a GPU; no effect on CPU slots"),
    "data_config.validation_split": acted_on("the fraction held out for evaluation"),
    "data_config.seed": acted_on("the random seed of order, splits and sampling"),
    "data_config.streaming": acted_on("reads data while training"),
    "data_config.shuffle_buffer": acted_on("the size of the shuffle buffer"),
}

_PLACEMENT: Table = {
    f"{_RESOURCES}.gpu_count": acted_on("devices per node; more than any node has is 400"),
    f"{_RESOURCES}.gpu_type": acted_on("the GPU type; one that no node has is 400"),
    f"{_RESOURCES}.gpu_memory_min_mb": acted_on("the minimum memory of a GPU; more than any GPU has is 400"),
    f"{_RESOURCES}.gpu_fraction": acted_on(
        "the fraction of a GPU to reserve; enforced on the memory of built-in trainers, not on scripts"
    ),
    f"{_RESOURCES}.gpu_memory_request_mb": acted_on("the fraction of a GPU to reserve, as memory"),
    f"{_RESOURCES}.mig_profile": acted_on("a MIG slice; one that no node has is 400"),
    f"{_RESOURCES}.cpu_cores": acted_on("cores to reserve, and the threads of the ranks; `limits` enforces"),
    f"{_RESOURCES}.ram_min_mb": acted_on("memory to reserve; `limits` enforces"),
    f"{_RESOURCES}.limits.ram_mb": acted_on("the memory limit, held by control groups; less than ram_min_mb is 400"),
    f"{_RESOURCES}.limits.cpu_cores": acted_on("the limit of processor time; less than cpu_cores is 400"),
    f"{_RESOURCES}.limits.storage_mb": acted_on(
        "the limit of files in the run directory, measured every few seconds; less than storage_min_mb is 400"
    ),
    f"{_RESOURCES}.limits.shm_mb": acted_on("the size of /dev/shm, on nodes with a sandbox"),
    f"{_RESOURCES}.limits.open_files": acted_on(
        "the limit of open files of a process; more than a node may give fails"
    ),
    f"{_RESOURCES}.limits.stack_mb": acted_on("the limit of the stack of each process and thread"),
    f"{_RESOURCES}.limits.locked_mb": acted_on("the limit of memory that a process locks"),
    f"{_RESOURCES}.limits.read_mb_per_second": acted_on("the rate at which the job reads from disks of a node"),
    f"{_RESOURCES}.limits.write_mb_per_second": acted_on("the rate at which the job writes to disks of a node"),
    f"{_RESOURCES}.limits.reads_per_second": acted_on("the rate of read operations on disks of a node"),
    f"{_RESOURCES}.limits.writes_per_second": acted_on("the rate of write operations on disks of a node"),
    f"{_RESOURCES}.limits.required": acted_on("which nodes run the job: those that offer `limits`, or all"),
    f"{_RESOURCES}.limits.processes": acted_on("the limit of processes and threads"),
    f"{_RESOURCES}.image.reference": acted_on(
        "the image whose files and programs the job has; one that no source holds is 400, one that does not exist "
        "fails the job"
    ),
    f"{_RESOURCES}.image.pull_policy": acted_on("when a node asks the registry for the image"),
    f"{_RESOURCES}.image.read_only": acted_on("whether the job can write to a copy of the image's files"),
    f"{_RESOURCES}.registry_logins.registry": acted_on(
        "whose images the login opens; one that has none of the job's is 400"
    ),
    f"{_RESOURCES}.registry_logins.username": acted_on("the user at the registry; one with a colon is 400"),
    f"{_RESOURCES}.registry_logins.password": acted_on("the password; stored encrypted, shown as ***"),
    f"{_RESOURCES}.user.uid": acted_on("the user ID that the processes see"),
    f"{_RESOURCES}.user.gid": acted_on("the group ID that the processes see"),
    f"{_RESOURCES}.user.required": acted_on("whether the job needs a node with a sandbox"),
    f"{_RESOURCES}.network": acted_on(
        "gate: a way out of the sandbox to listed services; 400 in a project without a list, and on several nodes"
    ),
    f"{_RESOURCES}.mounts.path": acted_on("the path in the sandbox; one of the system, or given twice, is 400"),
    f"{_RESOURCES}.mounts.type": acted_on("what lies there; data, model and code that the job does not have are 400"),
    f"{_RESOURCES}.mounts.source": acted_on("the data source; one that does not exist is 400"),
    f"{_RESOURCES}.mounts.sub_path": acted_on("a part of it; one that does not exist fails the job early"),
    f"{_RESOURCES}.mounts.size_mb": acted_on(
        "the size of a directory in memory; the limit of an empty one and of a claim, measured every few seconds"
    ),
    f"{_RESOURCES}.mounts.files.name": acted_on("the name of a file of the document"),
    f"{_RESOURCES}.mounts.files.content": acted_on("its text; encrypted and masked like other secrets"),
    f"{_RESOURCES}.mounts.mode": acted_on("the permissions of these files; one that its owner could not read is 400"),
    f"{_RESOURCES}.mounts.claim": acted_on("the volume claim; one that the node does not have fails the job early"),
    f"{_RESOURCES}.mounts.read_only": acted_on("whether the job can write to the claim; a shared one may refuse it"),
    f"{_RESOURCES}.mounts.create": acted_on("whether a claim that does not exist is made"),
    f"{_RESOURCES}.mounts.required": acted_on("which nodes run the job: those that offer `mounts`, or all"),
    f"{_RESOURCES}.storage_min_mb": acted_on("disk space to reserve; `limits` enforces"),
    f"{_RESOURCES}.device_type": acted_on("GPUs or CPU slots"),
    f"{_RESOURCES}.node_count": acted_on("number of nodes, allocated together"),
    f"{_RESOURCES}.required_node_labels": acted_on("labels that a node must have; labels that no node has are 400"),
    f"{_RESOURCES}.forbidden_node_labels": acted_on("labels that a node must not have"),
    f"{_RESOURCES}.node_affinity": acted_on("prefers nodes with these labels among those where the job can start now"),
    f"{_RESOURCES}.node_anti_affinity": acted_on("avoids nodes with these labels while others are free"),
    f"{_RESOURCES}.force_fit": acted_on("accepts a training that needs more memory than any device has"),
    f"{_SCHEDULING}.queue": acted_on("the queue; one that does not exist is 400"),
    f"{_SCHEDULING}.priority": acted_on("the priority in the queue"),
    f"{_SCHEDULING}.preemptible": acted_on(
        "higher-priority jobs of the project, and projects reclaiming borrowed devices, may preempt it"
    ),
    f"{_SCHEDULING}.on_preemption": acted_on("ends the job as PREEMPTED, or requeues it"),
    f"{_SCHEDULING}.min_runtime_seconds": acted_on("the minimum runtime before preemption"),
    f"{_SCHEDULING}.max_runtime_seconds": acted_on("the maximum runtime, after which the job fails"),
    f"{_SCHEDULING}.wait_for_node": acted_on(
        "true: a job that no node could ever hold is accepted with a warning and waits; else it is 400"
    ),
    f"{_SCHEDULING}.required_capabilities": acted_on("capabilities that a node must have"),
}

_EVALUATIONS = "training_config.evaluations"
_PLANNED: Table = {
    f"{_EVALUATIONS}.on": acted_on("when evaluations are made; CUSTOM is 400"),
    f"{_EVALUATIONS}.benchmarks.name": acted_on("what is measured; an unknown benchmark is 400 with the list of all"),
    f"{_EVALUATIONS}.benchmarks.dataset": acted_on("the records; places that need a secret of the user are 400"),
    f"{_EVALUATIONS}.benchmarks.num_samples": acted_on("measures only the first records"),
    f"{_EVALUATIONS}.benchmarks.parameters": acted_on("how it is measured; unknown ones and bad values are 400"),
    f"{_EVALUATIONS}.require.metric": acted_on("the value that is judged; one that is not measured is 400"),
    f"{_EVALUATIONS}.require.min": acted_on("a smaller value does not pass; the evaluation is COMPLETED all the same"),
    f"{_EVALUATIONS}.require.max": acted_on("a larger value does not pass"),
    f"{_EVALUATIONS}.require.baseline": acted_on("a worse value than its own does not pass; an unknown one is 400"),
    f"{_EVALUATIONS}.require.margin": acted_on("how much worse than baseline a value may be"),
    f"{_EVALUATIONS}.seed": acted_on("the random seed of samples"),
    **{f"{_EVALUATIONS}.{_RESOURCES}.{name}": _PLACEMENT[f"{_RESOURCES}.{name}"] for name in OF_RESOURCES},
}

_OF_ROLES: Table = {
    "tasks.role": acted_on("the role's name, in logs, events and the environment; the same name twice is 400"),
    "tasks.program": acted_on("whose program it is: a script of your own, or a part of the built-in trainer"),
    "tasks.count": acted_on("instances of the role; more than 64 of all roles together is 400"),
    "tasks.depends_on": acted_on("the order in which roles are started; roles that wait for each other are 400"),
    "tasks.restart": acted_on("whether an instance that fails is started again alone"),
    "tasks.affinity.role": acted_on("whose nodes the placement follows; an unknown role is 400"),
    "tasks.affinity.where": acted_on("on its nodes, or on others; what no placement could keep is 400"),
    "tasks.affinity.required": acted_on("false: kept where it can be; true, and no nodes could keep it: 400"),
    "tasks.world": acted_on("which ranks are counted together; job for a single role is 400"),
    "tasks.sidecar": acted_on("stops the role after the others; a job of sidecars alone is 400"),
    **{
        f"tasks.training_config.{name}": _TRAINING[f"{_FRAMEWORK}.{name}"]
        for name in ("custom_script_path", "custom_arguments", "custom_command")
    },
    "tasks.training_config.environment": _TRAINING["training_config.environment"],
    "tasks.training_config.config": acted_on("the processes of each instance, in num_proc_per_node"),
    **{
        path.replace("training_config", "tasks.training_config", 1): rule
        for path, rule in _TRAINING.items()
        if path.startswith(_PACKAGES)
    },
    **{f"tasks.{_RESOURCES}.{name}": _PLACEMENT[f"{_RESOURCES}.{name}"] for name in OF_INSTANCES},
    f"tasks.{_RESOURCES}.gpu_count": acted_on("devices of each instance; more than any node has is 400"),
    **{
        f"tasks.{_RESOURCES}.image.{name}": _PLACEMENT[f"{_RESOURCES}.image.{name}"]
        for name in ("reference", "pull_policy", "read_only")
    },
}

_RESULT: Table = {
    f"{_OUTPUT}.output_model_name": acted_on("the name of the result in the completion report and the model card"),
    f"{_OUTPUT}.output_path": acted_on("the directory to write the model to"),
    f"{_OUTPUT}.log_path": acted_on("the directory to write logs to; no output directory of the project is 400"),
    f"{_OUTPUT}.max_output_size_mb": acted_on("the maximum size; a larger output fails the job with EXPORT_FAILED"),
    f"{_CHECKPOINT}.save_strategy": acted_on("when to save checkpoints"),
    f"{_CHECKPOINT}.save_steps": acted_on("steps between checkpoints"),
    f"{_CHECKPOINT}.save_total_limit": acted_on("how many checkpoints to retain; the newest and the best always are"),
    f"{_CHECKPOINT}.save_at": acted_on("checkpoints at these steps, which save_total_limit never deletes"),
    f"{_CHECKPOINT}.metric_for_best_model": acted_on("selects the best checkpoint"),
    f"{_CHECKPOINT}.greater_is_better": acted_on("selects the best checkpoint"),
    f"{_OUTPUT}.credentials": _CREDENTIALS,
    f"{_OUTPUT}.storage_options": _OPTIONS,
    f"{_CHECKPOINT}.save_on_each_node": warned(
        "checkpoints are saved once, to storage that every node can read; nodes need no copies"
    ),
    f"{_CHECKPOINT}.resume_from_best": acted_on(
        "retries, resumed jobs and resume_from_checkpoint: job-… start from the best checkpoint"
    ),
    f"{_OUTPUT}.push_to_hub": acted_on("uploads the model"),
    f"{_OUTPUT}.hub_repo_id": acted_on("the target repository"),
    f"{_OUTPUT}.hub_token": acted_on("the access token; stored encrypted, shown as ***"),
    f"{_OUTPUT}.hub_private": acted_on("creates the repository as private"),
    f"{_OUTPUT}.export_format": acted_on("the format of the exported model; an unsupported one is 400"),
    f"{_OUTPUT}.merge_lora": acted_on("exports the merged model instead of the adapter"),
}

_TRACKING: Table = {
    "tracking.kind": acted_on("the kind of service; unknown ones are 400"),
    "tracking.url": acted_on("the server that receives the metrics; a private address that is not allowed is 400"),
    "tracking.mode": acted_on("offline: the run of W&B is an artifact for `wandb sync`, and nothing is sent"),
    "tracking.experiment": acted_on("the experiment, or the project of W&B, in which the job is a run"),
    "tracking.entity": acted_on("the user or team of W&B that owns the project"),
    "tracking.run_name": acted_on("the name of the run"),
    "tracking.tags": acted_on("tags of the run in W&B; with another kind 400"),
    "tracking.username": acted_on("basic authentication in place of a bearer token"),
    "tracking.token": acted_on("the access token; stored encrypted, shown as ***"),
}

_INTERACTIVE, _PORTS = "interactive_config", "interactive_config.ports"
_PROBE = f"{_INTERACTIVE}.readiness_probe"
_REACHED: Table = {
    f"{_PORTS}.name": acted_on("the port's name in its address; one given twice is 400"),
    f"{_PORTS}.port": acted_on("where the gateway connects to, in the sandbox; one given twice is 400"),
    f"{_PORTS}.protocol": acted_on("whether browsers reach it; tcp is for port-forward"),
    f"{_PORTS}.keep_prefix": acted_on("whether the job sees the prefix of its paths"),
    f"{_PORTS}.role": acted_on("the role on whose node the port is; one that the job does not have is 400"),
    f"{_PORTS}.index": acted_on("which instance of the role; one that there is not is 400"),
    f"{_PORTS}.authorized_users": acted_on("who may open the port; others are 403"),
    f"{_PORTS}.authorized_groups": acted_on("whose members may open it; 400 without an identity provider"),
    f"{_PROBE}.port": acted_on("the port that the node asks"),
    f"{_PROBE}.path": acted_on("asked by HTTP GET in place of a mere connection"),
    f"{_PROBE}.initial_delay_seconds": acted_on("the pause before the first probe"),
    f"{_PROBE}.period_seconds": acted_on("the interval of probes"),
    f"{_PROBE}.timeout_seconds": acted_on("the time for an answer; more than the period is 400"),
    f"{_PROBE}.success_threshold": acted_on("when the job becomes ready"),
    f"{_PROBE}.failure_threshold": acted_on("when it is ready no longer"),
    f"{_INTERACTIVE}.notebook": acted_on("starts JupyterLab in the sandbox; without it the job runs on, with an event"),
    f"{_INTERACTIVE}.terminal": acted_on("makes the output of scripts a terminal"),
    f"{_INTERACTIVE}.keep_on_failure_seconds": acted_on("keeps sandbox and devices after a failure of the script"),
}

FIELDS: Table = {
    "name": acted_on("shown and filtered by"),
    "labels": acted_on("shown and filtered by"),
    **_TRAINING,
    **_DATA,
    **_PLANNED,
    **_PLACEMENT,
    **_OF_ROLES,
    **_RESULT,
    **_TRACKING,
    **_REACHED,
}
