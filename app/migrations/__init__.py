"""The database's schema as a chain of revisions; works from the installed package, without an ini file."""
