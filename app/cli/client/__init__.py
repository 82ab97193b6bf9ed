"""User commands, which call the HTTP API."""
