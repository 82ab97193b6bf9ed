"""The command `trainyard` and the table of its subcommands; `flask GROUP …` runs the administrator's groups."""

import importlib
from collections.abc import MutableMapping
from typing import Any

import click

from app.cli.lazy_group import LazyGroup
from config.environment import completes_a_word

COMMANDS = {
    "up": ("app.cli.local.up:up", "Start everything on this machine, in the foreground."),
    "demo": ("app.cli.local.demo:demo", "Train a small model here and show the result."),
    "submit": ("app.cli.client.submit:submit", "Submit a job from a JSON or YAML file."),
    "recipes": ("app.cli.client.recipes.commands:recipes", "Job documents for well-known models: list, show, submit."),
    "import": ("app.cli.client.imports.command:import_", "Convert a configuration of axolotl or LLaMA-Factory."),
    "apply": ("app.cli.client.apply:apply", "Create or update OME training jobs from Kubernetes manifests."),
    "validate": ("app.cli.client.jobs.validate:validate", "Validate a job's data and model before submitting it."),
    "watch": ("app.cli.client.watch:watch", "Follow a job to its end."),
    "logs": ("app.cli.client.logs:logs", "Print a job's log lines."),
    "events": ("app.cli.client.jobs.history:events", "Show what has happened to a job."),
    "metrics": ("app.cli.client.jobs.metrics:metrics", "Show a job's metrics, also as curves."),
    "checkpoints": ("app.cli.client.jobs.results:checkpoints", "List a job's checkpoints."),
    "attempts": ("app.cli.client.jobs.history:attempts", "List a job's attempts."),
    "model-card": ("app.cli.client.jobs.provenance:model_card", "Print the model card of a finished job."),
    "lineage": ("app.cli.client.jobs.provenance:lineage", "Show what a job was made of, and what was made of it."),
    "wandb": ("app.cli.client.jobs.provenance:wandb", "Save a job's metrics for `wandb sync`."),
    "report": ("app.cli.client.jobs.results:report", "Show what came of an ended job."),
    "download": ("app.cli.client.jobs.download:download", "Download a job's files."),
    "open": ("app.cli.client.jobs.pages:open_page", "Open the dashboard, or a job's TensorBoard, in the browser."),
    "cancel": ("app.cli.client.jobs.verbs:cancel", "Cancel a job."),
    "release": ("app.cli.client.interactive.sessions:release", "End a failed job whose sandbox was kept."),
    "checkpoint": ("app.cli.client.jobs.verbs:checkpoint", "Save a checkpoint of a running job; it continues."),
    "pause": ("app.cli.client.jobs.verbs:pause", "Save a job and stop it until it is resumed."),
    "resume": ("app.cli.client.jobs.verbs:resume", "Put a paused job back into its queue."),
    "retry": ("app.cli.client.jobs.verbs:retry", "Retry a finished job as a new job."),
    "exec": ("app.cli.client.interactive.exec_commands:exec_", "Run a command in a running job."),
    "shell": ("app.cli.client.interactive.exec_commands:shell", "Open a shell in a running job."),
    "port-forward": ("app.cli.client.interactive.forward_command:port_forward", "Forward ports to a running job."),
    "ports": ("app.cli.client.interactive.ports:ports", "List a job's ports, and where they are served."),
    "notebook": ("app.cli.client.interactive.notebook:notebook", "Open JupyterLab in a job, or in a new one."),
    "sessions": ("app.cli.client.interactive.sessions:sessions", "List the sessions of a job, and end them."),
    "ssh-proxy": ("app.cli.client.interactive.ssh_proxy:ssh_proxy", "Let ssh, scp and editors reach a running job."),
    "compare": ("app.cli.client.jobs.compare:compare", "Compare jobs: documents, metrics, weights."),
    "sweep": ("app.cli.client.sweeps.commands:sweep", "Search for hyperparameters: submit, watch, best, replay."),
    "infer": ("app.cli.client.inference.infer:infer", "Run a model over records: completions, scores, vectors."),
    "eval": ("app.cli.client.inference.evaluations:evaluations", "Measure models on benchmarks and compare them."),
    "serve": ("app.cli.client.serving.serve:serve", "Serve a model: it answers requests under a name."),
    "services": ("app.cli.client.serving.services:services", "List and control what is served."),
    "chat": ("app.cli.client.serving.chat:chat", "Talk to a served model."),
    "usage": ("app.cli.client.usage:usage", "Show what projects use of their quotas, and what was asked of models."),
    "files": ("app.cli.client.files:files", "Upload data, and list, download and delete it."),
    "data": ("app.cli.client.data:data", "Upload data, models and code for documents to name."),
    "batches": ("app.cli.client.batches:batches", "Have the requests of a file answered, and get the answers."),
    "completion": ("app.cli.client.completion.command:completion", "Print the completion script of your shell."),
    "client-config": ("app.cli.client.client_config:client_config", "Print what clients of other systems need."),
    "jobs": ("app.cli.client.jobs.group:jobs", "List, show and control jobs."),
    "nodes": ("app.cli.admin.nodes:nodes", "Show and manage nodes."),
    "queues": ("app.cli.admin.queues:queues", "Show and manage queues and what waits in them."),
    "schedule": ("app.cli.admin.schedule:schedule", "Explain scheduling decisions and simulate other policies."),
    "keys": ("app.cli.admin.keys:keys", "Manage API keys."),
    "models": ("app.cli.admin.models:models", "Show models with names, and name base models."),
    "projects": ("app.cli.admin.projects:projects", "Show and manage projects and their quotas."),
    "audit": ("app.cli.admin.audit:audit", "Show the audit log."),
    "webhooks": ("app.cli.admin.webhooks:webhooks", "Manage webhooks, which receive events."),
    "db": ("app.cli.admin.db.db:db", "Manage the database: schema, backups, pruning."),
    "redis-users": ("app.cli.admin.redis_users:redis_users", "Write users of Redis with only what each process needs."),
    "api": ("app.cli.local.processes:api", "Run the API alone."),
    "coordinator": ("app.cli.local.processes:coordinator", "Run a coordinator alone."),
    "node": ("app.cli.local.processes:node", "Run a node worker alone."),
    "gateway": ("app.cli.local.processes:gateway", "Run a gateway, which brings requests to models, alone."),
    "tensorboard": ("app.cli.local.processes:tensorboard", "Run TensorBoard for all jobs alone."),
    "doctor": ("app.cli.admin.doctor:doctor", "Diagnose the deployment and suggest fixes."),
    "health": ("app.cli.admin.health:health", "Report whether a coordinator or node worker is alive."),
    "routes": ("app.cli.local.flask_commands:routes", "Show every URL of the API."),
    "python": ("app.cli.local.flask_commands:python", "Open Python with the application loaded."),
}


class Program(LazyGroup):
    """The program, which also completes words for shells, with what the server has."""

    def _main_shell_completion(
        self, ctx_args: MutableMapping[str, Any], prog_name: str, complete_var: str | None = None
    ) -> None:
        if completes_a_word():
            importlib.import_module("app.cli.client.completion.shells").register()
        super()._main_shell_completion(ctx_args, prog_name, complete_var)


@click.group(cls=Program, table=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="trainyard", prog_name="trainyard")
def main() -> None:
    """Trainyard: one JSON document in, a trained model out.

    Commands ask the server at TRAINYARD_URL with the key TRAINYARD_API_KEY, or the one that `trainyard up` runs on the
    data directory. JOB is a job's id, the last characters of it, its name, or @last: the newest that the key submitted.
    With --local, commands for jobs, nodes, queues, schedule, keys, models, projects, audit and webhooks work on the
    database of TRAINYARD_DATA_DIR or TRAINYARD_DATABASE_URL itself, without a server: for repair, with full access.
    """


if __name__ == "__main__":
    main()
