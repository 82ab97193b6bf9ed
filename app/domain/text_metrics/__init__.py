"""How alike two texts are, by the words they share."""
