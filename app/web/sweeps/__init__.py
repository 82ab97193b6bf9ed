"""Sweeps in pages: the forms to create and to fork one, and the rows in them."""
