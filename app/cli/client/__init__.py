"""Commands for users; they call the HTTP API."""
