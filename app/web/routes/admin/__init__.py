"""Pages of what administrators manage: one module per tab."""
