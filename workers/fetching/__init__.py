"""Data and models behind URIs: fetched by child processes into this node's cache."""
