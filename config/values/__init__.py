"""Types and rules of settings' values."""
