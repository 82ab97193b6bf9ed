"""How the nodes of an attempt find each other."""
