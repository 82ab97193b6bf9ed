"""Parameters that several benchmarks share, and those of families."""

from app.domain.evaluations.parameters import BenchmarkParameter
from app.domain.spec.inference import TASK_DIR

NORMALIZATIONS = ("none", "strip", "squad")

ANSWER = BenchmarkParameter(
    "answer", "text", "answer", "The column with the right answer, or a list of accepted ones", shortest=1
)
NORMALIZE = BenchmarkParameter(
    "normalize",
    "choice",
    "strip",
    "What of answers is compared: everything (none), without surrounding space (strip), or without case, punctuation, "
    "English articles and repeated space (squad)",
    choices=NORMALIZATIONS,
)
SQUAD = BenchmarkParameter("normalize", "choice", "squad", NORMALIZE.meaning, choices=NORMALIZATIONS)
TRAINED = (
    BenchmarkParameter(
        "batch_size", "int", 8, "Records of a batch; the loss is the mean over batches by records", 1, 4096
    ),
    BenchmarkParameter(
        "records_as",
        "choice",
        "SFT",
        "Records as of this training type: one by one (SFT), or joined and cut into blocks (CONTINUED_PRETRAIN)",
        choices=("SFT", "CONTINUED_PRETRAIN"),
    ),
    BenchmarkParameter(
        "completion_only_loss", "bool", True, "Of prompt and completion only the completion is measured"
    ),
    BenchmarkParameter("assistant_only_loss", "bool", True, "Of messages only what the assistant says is measured"),
)
SEPARATOR = BenchmarkParameter("separator", "text", " ", "Between a prompt that is a text and an answer")

OF_TASKS = (
    BenchmarkParameter(
        TASK_DIR,
        "text",
        None,
        "Required: the directory with the task's YAML file and the data that it names, by paths relative to that file",
        shortest=1,
    ),
    BenchmarkParameter(
        "num_fewshot", "int", None, "Solved examples before each question; default those of the task", 0, 1000
    ),
    BenchmarkParameter("apply_chat_template", "bool", False, "Prompts are messages of a chat"),
    BenchmarkParameter(
        "fewshot_as_multiturn", "bool", True, "With apply_chat_template, each example is a turn of its own"
    ),
    BenchmarkParameter("system_instruction", "text", None, "A text that precedes each prompt", shortest=1),
)
