"""Celery: thin tasks, one service call each, and the processes that run them."""
