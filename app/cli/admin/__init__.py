"""Commands for administrators; they open the database themselves."""
