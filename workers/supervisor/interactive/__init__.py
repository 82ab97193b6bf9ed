"""What a supervisor does so that people reach the sandbox of its attempt."""
