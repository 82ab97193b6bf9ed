"""Asks for suggestions and importances: in this process, or of a child that imports the libraries."""
