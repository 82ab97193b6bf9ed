"""The TensorBoard server: one TensorBoard per job on demand, in a process separate from the API."""
