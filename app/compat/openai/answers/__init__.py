"""Chat, completions and embeddings: what their requests may say, and their way to a gateway."""
