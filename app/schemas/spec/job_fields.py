"""What becomes of each field of a job document in Trainyard's own API."""

from app.schemas.spec.field_verdicts import Table, acted_on, warned

_MODEL, _FRAMEWORK = "training_config.base_model", "training_config.framework"
_SOURCES, _PREPROCESS = "data_config.sources", "data_config.preprocess"
_RESOURCES, _SCHEDULING = "resource_config", "scheduling_config"
_OUTPUT, _CHECKPOINT = "output_config", "output_config.checkpoint"
_CREDENTIALS = acted_on(
    "opens this place alone; kept encrypted, shown as ***; keys that its scheme does not take are 400"
)
_OPTIONS = acted_on("region and service of this place; keys that its scheme does not take are 400")

_TRAINING: Table = {
    "training_config.training_type": acted_on("decides the trainer; a pair of framework and type without one is 400"),
    f"{_MODEL}.model_id": acted_on(
        "the model that is loaded, from scaidrive:// and scaiatlas:// as the user; what can't be read is refused or "
        "fails the job early"
    ),
    "training_config.base_model.from_config": acted_on(
        "the model is trained from scratch, its weights drawn by data_config.seed; HF_TRAINER alone, others are 400"
    ),
    "training_config.base_model.revision": acted_on(
        "the branch, tag or commit of a hub model; other models have none: 400"
    ),
    f"{_MODEL}.source": acted_on("decides between the hub and a local path; a contradiction to model_id is 400"),
    f"{_MODEL}.credentials": _CREDENTIALS,
    f"{_MODEL}.storage_options": _OPTIONS,
    f"{_MODEL}.tokenizer_id": acted_on("the tokenizer that is loaded and exported"),
    f"{_MODEL}.dtype": acted_on("the precision of the weights; one that a framework can't compute in is 400"),
    f"{_MODEL}.trust_remote_code": acted_on("runs the model's own code, in the sandbox"),
    f"{_MODEL}.model_kwargs": acted_on("changes the model's configuration; unknown names are 400"),
    f"{_FRAMEWORK}.type": acted_on("decides what trains"),
    f"{_FRAMEWORK}.config": acted_on(
        "the options of DEEPSPEED, FSDP and MEGATRON, arguments of HF_TRAINER's Trainer, and whatever CUSTOM's script "
        "reads; unknown ones are 400 with the list"
    ),
    f"{_FRAMEWORK}.distributed.world_size": acted_on("checked: what differs from the number of ranks is 400"),
    f"{_FRAMEWORK}.distributed.backend": acted_on(
        "checked: nccl on GPUs, gloo on CPU slots; gloo on GPUs and others are 400, nccl on CPU slots is warned of; "
        "CUSTOM's script reads it itself"
    ),
    f"{_FRAMEWORK}.distributed.strategy": acted_on(
        "checked: what is not the framework's is 400, with the framework that does it; CUSTOM's script may read any"
    ),
    f"{_FRAMEWORK}.distributed.config": acted_on(
        "num_proc_per_node; other names are 400, CUSTOM's script may read any"
    ),
    f"{_FRAMEWORK}.custom_script_path": acted_on("the script that runs"),
    f"{_FRAMEWORK}.custom_arguments": acted_on("what the script is called with"),
    f"{_FRAMEWORK}.custom_command": acted_on("the program that runs, and what it is called with"),
    f"{_FRAMEWORK}.custom_code_dir": acted_on("the directory that the ranks see and start in"),
    f"{_FRAMEWORK}.custom_retry_on_error": acted_on("retries a script that ends with an error"),
    "training_config.hyperparameters": acted_on("read by the trainer; unknown names and values are 400"),
    "training_config.environment": acted_on("variables of the ranks; names that the platform sets are 400"),
    "training_config.resume_from_checkpoint": acted_on("the checkpoint that the first attempt starts from"),
    "training_config.max_retries": acted_on("how many attempts may follow a failure"),
    "training_config.priority": acted_on("the place in the queue, unless scheduling_config.priority is set"),
    "training_config.evaluation.strategy": acted_on("when validation data is measured"),
    "training_config.evaluation.steps": acted_on("how often, with strategy steps"),
    "training_config.on_divergence.action": acted_on("stops or rolls back a training that diverges"),
    "training_config.on_divergence.learning_rate_factor": acted_on("lowers the learning rate at a rollback"),
    "training_config.on_divergence.max_rollbacks": acted_on("how many rollbacks there are before the job fails"),
}

_DATA: Table = {
    f"{_SOURCES}.path": acted_on("what is read; a place that may not be read is 400"),
    f"{_SOURCES}.type": acted_on("checked: a contradiction to the path is 400"),
    f"{_SOURCES}.split": acted_on("what the records are for, and which rows are taken"),
    f"{_SOURCES}.format": acted_on("how the files are read"),
    f"{_SOURCES}.credentials": _CREDENTIALS,
    f"{_SOURCES}.storage_options": _OPTIONS,
    f"{_SOURCES}.columns": acted_on("the columns that are kept"),
    f"{_SOURCES}.filters.column": acted_on("the column that a filter looks at"),
    f"{_SOURCES}.filters.op": acted_on("how a filter compares"),
    f"{_SOURCES}.filters.value": acted_on("what a filter compares with"),
    f"{_SOURCES}.sampling.fraction": acted_on("keeps a share of the records"),
    f"{_SOURCES}.sampling.count": acted_on("keeps so many records"),
    f"{_SOURCES}.sampling.seed": acted_on("decides which records are kept"),
    f"{_SOURCES}.weight": acted_on("the source's share of an epoch"),
    f"{_PREPROCESS}.tokenizer_config": acted_on("changes the tokenizer; unknown names are 400"),
    f"{_PREPROCESS}.add_bos_token": acted_on("begins records with BOS"),
    f"{_PREPROCESS}.add_eos_token": acted_on("ends records with EOS"),
    f"{_PREPROCESS}.padding": acted_on("pads batches"),
    f"{_PREPROCESS}.truncation": acted_on("cuts records that are too long, or fails the job before it takes a device"),
    f"{_PREPROCESS}.chat_template": acted_on("renders messages, and is exported with the tokenizer"),
    f"{_PREPROCESS}.field_mapping": acted_on("names the columns that are trained on"),
    "data_config.max_seq_length": acted_on("the longest sequence"),
    "data_config.batch_size": acted_on("records of a device's forward pass"),
    "data_config.gradient_accumulation_steps": acted_on("forward passes of a step"),
    "data_config.num_workers": acted_on("processes that load data"),
    "data_config.pin_memory": acted_on("page-locked memory for copies to a GPU; CPU slots copy nothing"),
    "data_config.validation_split": acted_on("the share that is evaluated with"),
    "data_config.seed": acted_on("order, splits and sampling"),
    "data_config.streaming": acted_on("reads data while it trains"),
    "data_config.shuffle_buffer": acted_on("how far a stream is shuffled"),
}

_PLACEMENT: Table = {
    f"{_RESOURCES}.gpu_count": acted_on("devices of a node; more than any node has is 400"),
    f"{_RESOURCES}.gpu_type": acted_on("the chip; one that no node has is 400"),
    f"{_RESOURCES}.gpu_memory_min_mb": acted_on(
        "the least memory of a GPU; more than any has is 400, and any where there are no GPUs"
    ),
    f"{_RESOURCES}.gpu_fraction": acted_on(
        "the part of a GPU that is set aside; built-in trainers keep to its memory, scripts are not held to it"
    ),
    f"{_RESOURCES}.gpu_memory_request_mb": acted_on("the same, in memory"),
    f"{_RESOURCES}.mig_profile": acted_on("a MIG slice; one that no node has is 400"),
    f"{_RESOURCES}.cpu_cores": acted_on("cores that are set aside, and the threads of the ranks; not enforced"),
    f"{_RESOURCES}.ram_min_mb": acted_on("memory that is set aside; not enforced"),
    f"{_RESOURCES}.storage_min_mb": acted_on("disk space that is set aside; not enforced"),
    f"{_RESOURCES}.device_type": acted_on("GPUs or CPU slots"),
    f"{_RESOURCES}.node_count": acted_on("nodes, all of them at once"),
    f"{_RESOURCES}.required_node_labels": acted_on("labels that a node must have; some that no node has are 400"),
    f"{_RESOURCES}.forbidden_node_labels": acted_on("labels that a node must not have"),
    f"{_RESOURCES}.node_affinity": acted_on("prefers nodes with these labels, of those where the job can start now"),
    f"{_RESOURCES}.node_anti_affinity": acted_on("avoids nodes with these labels where others are free"),
    f"{_SCHEDULING}.queue": acted_on("the queue; one that does not exist is 400"),
    f"{_SCHEDULING}.priority": acted_on("the place in the queue"),
    f"{_SCHEDULING}.preemptible": acted_on(
        "more urgent jobs may take its devices: those of higher priority, as a queue by priority implies"
    ),
    f"{_SCHEDULING}.on_preemption": acted_on("PREEMPTED, or back into the queue"),
    f"{_SCHEDULING}.min_runtime_seconds": acted_on("how long it is left alone"),
    f"{_SCHEDULING}.max_runtime_seconds": acted_on("fails the job after so long"),
    f"{_SCHEDULING}.required_capabilities": acted_on("capabilities that a node must have"),
}

_RESULT: Table = {
    f"{_OUTPUT}.output_model_name": acted_on("names the result in the completion report and the model card"),
    f"{_OUTPUT}.output_path": acted_on("the directory that gets the model"),
    f"{_OUTPUT}.credentials": _CREDENTIALS,
    f"{_OUTPUT}.storage_options": _OPTIONS,
    f"{_OUTPUT}.max_output_size_mb": acted_on("an output that is larger fails the job with EXPORT_FAILED"),
    f"{_CHECKPOINT}.save_strategy": acted_on("when checkpoints are saved"),
    f"{_CHECKPOINT}.save_steps": acted_on("steps between them"),
    f"{_CHECKPOINT}.save_total_limit": acted_on("how many are kept; the newest and the best always are"),
    f"{_CHECKPOINT}.metric_for_best_model": acted_on("decides which checkpoint is the best"),
    f"{_CHECKPOINT}.greater_is_better": acted_on("decides which checkpoint is the best"),
    f"{_CHECKPOINT}.save_on_each_node": warned(
        "checkpoints are saved once, to storage that every node reads; none has to have a copy of its own"
    ),
    f"{_CHECKPOINT}.resume_from_best": acted_on(
        "retries, resumed jobs and resume_from_checkpoint: job-… start from the best checkpoint"
    ),
    f"{_OUTPUT}.push_to_hub": acted_on("uploads the model"),
    f"{_OUTPUT}.hub_repo_id": acted_on("where to"),
    f"{_OUTPUT}.hub_token": acted_on("with which token; kept encrypted, shown as ***"),
    f"{_OUTPUT}.hub_private": acted_on("makes a new repository private"),
    f"{_OUTPUT}.export_format": acted_on("the form of the model; one that can't be written is 400"),
    f"{_OUTPUT}.merge_lora": acted_on("exports the whole model instead of the adapter"),
}

FIELDS: Table = {
    "name": acted_on("shown and searched by"),
    "labels": acted_on("jobs are found by them"),
    **_TRAINING,
    **_DATA,
    **_PLACEMENT,
    **_RESULT,
}
