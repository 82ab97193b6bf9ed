"""A replica of a service: its loop over the engine, and the HTTP server in front of it."""
