"""File formats of training data, and their detection by suffix."""

import re

FORMATS = ("jsonl", "json", "csv", "parquet", "text", "arrow")
COMPRESSIONS = (".gz", ".zst")

_BY_SUFFIX = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".parquet": "parquet",
    ".txt": "text",
    ".text": "text",
    ".arrow": "arrow",
}


def format_of(location: str) -> str | None:
    """Format by the suffix of a path or URI, ignoring a compression suffix; None when unknown."""
    name = location.partition("://")[2].partition("?")[0] if re.match("https?:", location, re.IGNORECASE) else location
    name = name.rpartition("/")[2].lower()
    for compression in COMPRESSIONS:
        name = name.removesuffix(compression)
    return _BY_SUFFIX.get("." + name.rpartition(".")[2]) if "." in name else None
