"""API keys, projects, the audit log, denied requests, secret files."""
