"""Publishing finished models: to a user's location, or to a model hub."""
