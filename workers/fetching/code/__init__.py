"""Code and other directories that arrive as archives: fetched from repositories, unpacked within limits."""
