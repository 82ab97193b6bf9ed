"""The effect of each field of CyxWiz's JobConfig. Node limits, its ``[jobs]`` section, are not fields of it."""

from app.schemas.spec.field_verdicts import Table, acted_on

FIELDS: Table = {
    "job_id": acted_on("The job's name, unique in the project; empty: the answer has the native id"),
    "job_type": acted_on("TRAINING, or omitted; INFERENCE: a batch or features job, or a service"),
    "model_config": acted_on(
        "A model's id or URI; a JSON object with model_type, a configuration of transformers that is trained from "
        "scratch, with tokenizer_id; or a JSON object with sections of a native job document. INFERENCE: the id of a "
        "job, a model's id or URI, or a JSON object with sections of an inference document or, with kind service, of "
        "a service"
    ),
    "dataset_uri": acted_on("The training data, or the records of INFERENCE"),
    "epochs": acted_on("Passes over the data; refused with INFERENCE"),
    "batch_size": acted_on("Records per device and step; refused with INFERENCE"),
    "learning_rate": acted_on(
        "The peak learning rate; omitted: the default of the training type; refused with INFERENCE"
    ),
    "required_device": acted_on("CUDA, CPU, or omitted for either; OPENCL is refused: no trainer supports it"),
    "min_memory_mb": acted_on("Minimum memory of the GPU with CUDA, else of the node"),
    "priority": acted_on("1 to 10; omitted: 5"),
    "timeout_seconds": acted_on("Maximum run time; the job fails after it"),
    "max_output_size_mb": acted_on("The job fails when its output is larger, with EXPORT_FAILED"),
}
