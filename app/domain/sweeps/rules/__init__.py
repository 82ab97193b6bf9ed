"""What is refused of a sweep's document before the database is asked."""
