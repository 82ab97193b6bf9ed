"""Requests of ranks to models: the supervisor passes them on to the gateway, with the job's token."""
