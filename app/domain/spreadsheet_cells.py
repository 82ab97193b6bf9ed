"""Texts for tables that spreadsheets open, which evaluate a cell that begins like a formula."""

# Full-width signs, too: some spreadsheets read them as the plain ones.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def as_text(text: str) -> str:
    """With an apostrophe before it if it begins like a formula, also after spaces."""
    return f"'{text}" if text.lstrip(" ").startswith(_FORMULA) else text
