"""Threads of the coordinator: planning, preflight, webhook delivery, the result mirror."""
