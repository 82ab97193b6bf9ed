"""`trainyard completion`: the script that makes a shell complete commands, options, ids and names."""

import click
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

from app.cli.choice import SuggestingChoice
from config.environment import COMPLETION_VARIABLE

PROGRAM = "trainyard"
SHELLS: dict[str, type[ShellComplete]] = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}


@click.command()
@click.argument("shell", type=SuggestingChoice([*SHELLS]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script for SHELL.

    For bash, add to ~/.bashrc:  eval "$(trainyard completion bash)"

    For zsh, add to ~/.zshrc:  eval "$(trainyard completion zsh)"

    For fish:  trainyard completion fish > ~/.config/fish/completions/trainyard.fish
    """
    script = SHELLS[shell](context.find_root().command, {}, PROGRAM, COMPLETION_VARIABLE)
    click.echo(script.source())
