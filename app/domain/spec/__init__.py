"""The job specification: what a job document may say, its defaults, and the rules that span sections."""
