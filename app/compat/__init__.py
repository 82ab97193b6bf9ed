"""Foreign vocabularies over the same services: each translates both ways, and decides nothing itself."""
