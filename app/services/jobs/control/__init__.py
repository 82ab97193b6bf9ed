"""Requests that change a job: pause, resume, cancel, revoke, one or many."""
