"""`trainyard sweep`: searches for hyperparameters, over HTTP."""
