"""What click asks for each word: commands and options are its own affair, names and ids come from the server."""

from click import Context, Parameter
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    # Of click's own `get_completions`, which has no other place for parameters that say nothing themselves.
    _resolve_context,
    _resolve_incomplete,
    add_completion_class,
)

from app.cli.client.completion.names import Names, names_of, roles_of

# What a parameter of this name takes, wherever it is.
OF_PARAMETERS = {
    "handle": "jobs",
    "handles": "jobs",
    "job_id": "jobs",
    "job_ids": "jobs",
    "queue": "queues",
    "project": "projects",
    "node": "nodes",
    "node_name": "nodes",
    "service": "services",
    "sweep_id": "sweeps",
    "batch_id": "batches",
    "evaluation_id": "evaluations",
    "evaluation_ids": "evaluations",
    "file_id": "files",
    "file_ids": "files",
    "webhook_id": "webhooks",
    "key_id": "keys",
}
# What the argument `name` of a group's commands takes, except of those that make a new one.
OF_GROUPS = {"queues": "queues", "nodes": "nodes", "projects": "projects", "quotas": "projects", "models": "models"}
ROLE = "role"  # of the job that stands before it
_NEW = ("create", "add")


class _OfServer(ShellComplete):
    """Asks the server where click knows nothing."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        found = super().get_completions([*args], incomplete)
        if found:
            return found
        with _resolve_context(self.cli, self.ctx_args, self.prog_name, [*args]) as context:
            asked, rest = _resolve_incomplete(context, [*args], incomplete)
            names = _names(context, asked) if isinstance(asked, Parameter) else []
        return [CompletionItem(name, help=text) for name, text in names if name.startswith(rest)]


def _names(context: Context, parameter: Parameter) -> Names:
    if parameter.name == ROLE and any(each.name == "handle" for each in context.command.params):
        return roles_of(_job_of(context))
    return names_of(kind_of(context, parameter))


def _job_of(context: Context) -> str:
    """The handle of the job that was typed already; click leaves it among the words while an option has no value."""
    words = (word for word in context.args if not word.startswith("-"))
    return context.params.get("handle") or next(words, "")


def kind_of(context: Context, parameter: Parameter) -> str:
    """What the parameter takes; empty when no list of the server has it."""
    if parameter.name != "name":
        return OF_PARAMETERS.get(parameter.name or "", "")
    group = context.parent.info_name if context.parent else ""
    return "" if context.info_name in _NEW else OF_GROUPS.get(group or "", "")


class Bash(_OfServer, BashComplete):
    pass


class Zsh(_OfServer, ZshComplete):
    pass


class Fish(_OfServer, FishComplete):
    pass


def register() -> None:
    """Have click take these."""
    for shell in (Bash, Zsh, Fish):
        add_completion_class(shell)
