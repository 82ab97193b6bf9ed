"""The file formats of training data, and which one a name tells."""

import re

FORMATS = ("jsonl", "json", "csv", "parquet", "text", "arrow")
COMPRESSIONS = (".gz", ".zst")

_BY_SUFFIX = {
    ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".csv": "csv", ".parquet": "parquet", ".txt": "text",
    ".text": "text", ".arrow": "arrow",
}  # fmt: skip


def format_of(location: str) -> str | None:
    """The format that a path or URI tells by its suffix, a compression's aside; None when it tells none."""
    name = location.partition("://")[2].partition("?")[0] if re.match("https?:", location, re.IGNORECASE) else location
    name = name.rpartition("/")[2].lower()
    for compression in COMPRESSIONS:
        name = name.removesuffix(compression)
    return _BY_SUFFIX.get("." + name.rpartition(".")[2]) if "." in name else None
