"""Services: their documents, which weights they serve, and how many replicas they need."""
