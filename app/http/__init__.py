"""The HTTP layer shared by all dialects: authentication, route declarations, bodies, responses and errors."""
