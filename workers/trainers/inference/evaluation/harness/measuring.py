"""Measures a task of the harness with its own evaluator, which asks our engine."""

import shutil
import tempfile
from pathlib import Path
from typing import Any

from lm_eval.api.task import Task as HarnessTask
from lm_eval.evaluator import evaluate

from app.domain.evaluations import catalog
from app.domain.spec.inference import TASK_DIR
from workers.rank.spec_sections import data_config
from workers.trainers.data import templates
from workers.trainers.failures import InvalidConfig, TrainingFailure, is_out_of_memory
from workers.trainers.inference.engine.interface import Interrupted
from workers.trainers.inference.evaluation.harness.figures import HarnessMetrics
from workers.trainers.inference.evaluation.harness.language_model import HarnessModel
from workers.trainers.inference.evaluation.harness.task_files import TaskFailed, load_task
from workers.trainers.inference.evaluation.measure import BenchmarkTask, Measurement


def measure(task: BenchmarkTask) -> Measurement:
    """As `measure.Measure`. Raises also what the functions of the task make: TaskFailed."""
    name, values = catalog.argument(task.benchmark.name), task.parameters
    directory = Path(task.spec.benchmark_files.get(values[TASK_DIR], values[TASK_DIR]))
    model = _model(task)
    cache = Path(tempfile.mkdtemp(prefix="lm-eval-", dir=task.spec.run_dir))
    try:
        loaded = load_task(name, directory, cache, values["num_fewshot"])
        found = _evaluated(task, model, loaded, values)
    finally:
        shutil.rmtree(cache, ignore_errors=True)
    metrics = HarnessMetrics(
        found["results"][loaded.task_name], found["samples"][loaded.task_name], loaded.aggregation()
    )
    estimates = metrics.estimates(task.seed, task.interrupted)
    if not estimates:
        raise InvalidConfig(
            f"benchmark {task.benchmark.name}: the task has no metric that is a number; see metric_list"
        )
    return Measurement(
        samples=list(metrics.samples()),
        prompt_tokens=model.prompt_tokens,
        completion_tokens=model.completion_tokens,
        estimates=estimates,
    )


def _model(task: BenchmarkTask) -> HarnessModel:
    preprocess = data_config(task.spec).preprocess
    if task.parameters["apply_chat_template"]:
        templates.use_own(task.engine.tokenizer, preprocess.chat_template)
        templates.ensure(task.engine.tokenizer)
    return HarnessModel(task.engine, task.benchmark.name, task.seed, task.interrupted, add_bos=preprocess.add_bos_token)


def _evaluated(task: BenchmarkTask, model: HarnessModel, loaded: HarnessTask, values: dict[str, Any]) -> dict[str, Any]:
    chat = values["apply_chat_template"]
    try:
        found: dict[str, Any] = evaluate(
            lm=model,
            task_dict={"tasks": {loaded.task_name: loaded}, "groups": {}},
            limit=task.benchmark.num_samples,
            bootstrap_iters=0,  # in processes of its own, a hundred thousand times
            system_instruction=values["system_instruction"],
            apply_chat_template=chat,
            fewshot_as_multiturn=chat and values["fewshot_as_multiturn"],
            confirm_run_unsafe_code=True,  # the job's sandbox is there for it
        )
    except (Interrupted, TrainingFailure):
        raise
    except Exception as error:
        if error is model.failure or is_out_of_memory(error):
            raise
        raise TaskFailed(
            f"benchmark {task.benchmark.name}: the task failed: {type(error).__name__}: {str(error)[:512]}"
        ) from error
    return found
