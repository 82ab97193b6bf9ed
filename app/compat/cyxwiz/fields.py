"""What becomes of each field of CyxWiz's JobConfig; limits of nodes, as its ``[jobs]`` section, are no fields of it."""

from app.schemas.spec.field_verdicts import Table, acted_on

FIELDS: Table = {
    "job_id": acted_on("The job's name, given once in a project; empty: the answer has our id"),
    "job_type": acted_on("TRAINING, or left out; INFERENCE is refused: serve the trained model elsewhere"),
    "model_config": acted_on(
        "A model's id or URI; a JSON object with model_type, a configuration of transformers that is trained from "
        "scratch, its tokenizer named by tokenizer_id in it; or a JSON object with parts of a native job document"
    ),
    "dataset_uri": acted_on("The data that is trained on"),
    "epochs": acted_on("Passes over the data"),
    "batch_size": acted_on("Records per device and step"),
    "learning_rate": acted_on("The peak learning rate; left out: the default of the training type"),
    "required_device": acted_on("CUDA, CPU, or left out for either; OPENCL is refused: no trainer computes by it"),
    "min_memory_mb": acted_on("Memory of the GPU with CUDA, else of the node"),
    "priority": acted_on("1 to 10; left out: 5"),
    "timeout_seconds": acted_on("The job fails when it has run for so long"),
    "max_output_size_mb": acted_on("The job fails when its output is larger, with EXPORT_FAILED"),
}
