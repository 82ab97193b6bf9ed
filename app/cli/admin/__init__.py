"""Administrators' commands: those on nodes, queues, keys and projects ask the server, the others the database."""
