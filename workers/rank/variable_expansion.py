"""References to variables in a script's arguments, commands and variables: $(NAME), as Kubernetes writes them.

Unlike there, only $$(NAME) stands for $(NAME) itself; $$ elsewhere is a shell's. Standard library only.
"""

import re
from collections.abc import Mapping

_REFERENCE = re.compile(r"(\$?)\$\(([A-Za-z_][A-Za-z0-9_]*)\)", re.ASCII)


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """Replace references to known variables; others stay, because a shell may resolve them."""

    def value(found: re.Match[str]) -> str:
        escaped, name = found.groups()
        return f"$({name})" if escaped else variables.get(name, found[0])

    return _REFERENCE.sub(value, text)


def expanded_in_turn(values: Mapping[str, str], variables: Mapping[str, str]) -> dict[str, str]:
    """Each may refer to those before it, too."""
    found: dict[str, str] = {}
    for name, text in values.items():
        found[name] = expanded(text, {**found, **variables})
    return found
