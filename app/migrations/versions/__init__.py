"""One file per revision; one that has shipped is never edited."""
