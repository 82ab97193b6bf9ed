"""Data and models behind URIs: fetched by child processes into a cache of this node, and handed out from there."""
