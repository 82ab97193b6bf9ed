"""Types of the answers that the client returns."""
