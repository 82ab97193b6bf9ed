"""Model cards: what a finished model was made of, what it measures, and how it is loaded, as data and as Markdown."""
