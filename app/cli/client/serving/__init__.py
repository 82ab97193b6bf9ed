"""The commands about services: serving a model, talking to it, and what was used."""
