"""The HTTP server: gunicorn's worker class and hooks."""
