"""Run:ai's documents, field by field."""
