"""How content is recognized and compared: first bytes of packed files, and digests that clients send."""

import re
from typing import Final

GZIP: Final = b"\x1f\x8b"
ZSTD: Final = b"\x28\xb5\x2f\xfd"
MD5: Final = re.compile(r"[0-9a-fA-F]{32}")
