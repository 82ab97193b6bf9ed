"""Taking a consistent copy of the database while everything runs, and putting it back when nothing does."""
