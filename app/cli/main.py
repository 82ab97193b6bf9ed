"""The command `trainyard` and the table of its subcommands; `flask GROUP …` runs the administrator's groups."""

import click

from app.cli.lazy_group import LazyGroup

COMMANDS = {
    "up": ("app.cli.local.up:up", "Start everything on this machine, in the foreground."),
    "demo": ("app.cli.local.demo:demo", "Train a small model here and show the result."),
    "submit": ("app.cli.client.submit:submit", "Submit a job from a JSON or YAML file."),
    "apply": ("app.cli.client.apply:apply", "Create or update OME training jobs from Kubernetes manifests."),
    "watch": ("app.cli.client.watch:watch", "Follow a job to its end."),
    "logs": ("app.cli.client.logs:logs", "Print a job's log lines."),
    "cancel": ("app.cli.client.job_commands:cancel", "Cancel a job."),
    "checkpoint": ("app.cli.client.job_commands:checkpoint", "Save a checkpoint of a running job; it continues."),
    "pause": ("app.cli.client.job_commands:pause", "Save a job and stop it until it is resumed."),
    "resume": ("app.cli.client.job_commands:resume", "Put a paused job back into its queue."),
    "retry": ("app.cli.client.job_commands:retry", "Retry a finished job as a new job."),
    "compare": ("app.cli.client.job_commands:compare", "Compare jobs: documents, metrics, weights."),
    "sweep": ("app.cli.client.sweeps.commands:sweep", "Search for hyperparameters: submit, watch, best, replay."),
    "infer": ("app.cli.client.inference.infer:infer", "Run a model over records: completions, scores, vectors."),
    "eval": ("app.cli.client.inference.evaluations:evaluations", "Measure models on benchmarks and compare them."),
    "serve": ("app.cli.client.serving.serve:serve", "Serve a model: it answers requests under a name."),
    "services": ("app.cli.client.serving.services:services", "List and control what is served."),
    "chat": ("app.cli.client.serving.chat:chat", "Talk to a served model."),
    "usage": ("app.cli.client.serving.usage:usage", "Show how much was asked of served models."),
    "files": ("app.cli.client.files:files", "Upload data, and list, download and delete it."),
    "batches": ("app.cli.client.batches:batches", "Have the requests of a file answered, and get the answers."),
    "client-config": ("app.cli.client.client_config:client_config", "Print what clients of other systems need."),
    "jobs": ("app.cli.admin.jobs:jobs", "Manage jobs, in the database."),
    "nodes": ("app.cli.admin.nodes:nodes", "Manage nodes, in the database."),
    "queues": ("app.cli.admin.queues:queues", "Manage queues, in the database."),
    "schedule": ("app.cli.admin.schedule:schedule", "Explain scheduling decisions and simulate other policies."),
    "keys": ("app.cli.admin.keys:keys", "Manage API keys, in the database."),
    "models": ("app.cli.admin.models:models", "Name base models, in the database."),
    "projects": ("app.cli.admin.projects:projects", "Manage projects, in the database."),
    "audit": ("app.cli.admin.audit:audit", "Show the audit log, from the database."),
    "webhooks": ("app.cli.admin.webhooks:webhooks", "Manage webhooks, in the database."),
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
    "shell": ("app.cli.local.flask_commands:shell", "Open Python with the application loaded."),
}


@click.group(cls=LazyGroup, table=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="trainyard", prog_name="trainyard")
def main() -> None:
    """Trainyard: one JSON document in, a trained model out.

    Client commands talk to the server at TRAINYARD_URL with TRAINYARD_API_KEY, or to the one that `trainyard up`
    runs on the data directory. The groups jobs, nodes, queues, schedule, keys, models, projects, audit, webhooks and db
    are for administrators: they work on the database itself, found by TRAINYARD_DATA_DIR or TRAINYARD_DATABASE_URL.
    """


if __name__ == "__main__":
    main()
