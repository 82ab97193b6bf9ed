"""What is thrown away because it is old, or because there is too much of it, and only when the settings say so."""
