"""Jobs that use a model instead of training one: batches, features and evaluations."""
