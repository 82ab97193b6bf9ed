"""Files on this machine that a document names as if the server had them, and how to send them there."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeGuard

from app.domain.spec.frameworks.custom import CODE_DIR, SCRIPT

_LOCAL = "file://"


def ways_to_send(document: Mapping[str, Any], *, said: str = "") -> list[str]:
    """For each file or directory of this machine that the document names: how to upload it.

    ``said``: an error; only what it names is meant.
    """
    return [way for path, way in _named_here(document) if path in said or not said]


def _named_here(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(path as it is written, way out)"""
    framework = _section(_section(document, "training_config"), "framework")
    code, script = framework.get(CODE_DIR), framework.get(SCRIPT)
    if code is None and _is_here(script):
        folder = "." if not Path(script).is_absolute() else str(Path(script).parent)
        yield script, f"{script} lies on this machine; submit with `--code {folder}` to upload its directory"
    elif _is_here(code):
        yield code, f"{code} lies on this machine; upload it with `--code {code}` instead of {CODE_DIR}"
    sources = _section(document, "data_config").get("sources")
    for source in sources if isinstance(sources, list) else ():
        path = source.get("path") if isinstance(source, dict) else None
        for each in path if isinstance(path, list) else [path]:
            if _is_here(each):
                push = f"upload it with `trainyard data push {each}`"
                yield each, f"{each} lies on this machine; {push}, and put the upload://… that it prints in its place"


def _is_here(written: object) -> TypeGuard[str]:
    if not isinstance(written, str) or not written:
        return False
    try:
        return Path(written.removeprefix(_LOCAL)).exists()
    except (OSError, ValueError):  # too long, or with a NUL
        return False


def _section(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = document.get(name)
    return found if isinstance(found, dict) else {}
