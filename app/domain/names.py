"""What projects and queues may be called, and what nodes and jobs are labelled."""

import re

# Names become part of broker queue names and paths, where other characters have a meaning.
NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
NAME_RULE = "use 1 to 63 lower-case letters, digits and dashes, no dash at either end"

DEFAULT_PROJECT = "default"

# Labels and capabilities of nodes, as nodes offer and jobs require them.
WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:-]{0,127}")
WORD_RULE = "must be 1 to 128 of letters, digits and ._/:-, beginning with a letter or digit"

# Labels of a job, by which lists of jobs are filtered.
MOST_LABELS = 64

# A label constraint of a job: one label, or several alternatives.
EITHER = "|"
LABEL_CONSTRAINT = re.compile(rf"{WORD.pattern}(?:\|{WORD.pattern}){{0,15}}")
LABEL_CONSTRAINT_RULE = (
    "must be 1 to 16 labels with | between them, each 1 to 128 of letters, digits and ._/:-, no punctuation first"
)
