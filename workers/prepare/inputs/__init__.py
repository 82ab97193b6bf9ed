"""Where the data and the model of an attempt come from."""
