"""Rules of uploaded files: purposes, and the shapes of their records."""
