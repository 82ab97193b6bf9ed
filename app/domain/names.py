"""What projects and queues may be called."""

import re

# They become part of broker queue names and of paths, where other characters have a meaning.
NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
NAME_RULE = "use 1 to 63 lower-case letters, digits and dashes, no dash at either end"
