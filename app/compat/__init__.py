"""APIs of other systems over the same services: each translates requests and responses and has no rules of its own."""
