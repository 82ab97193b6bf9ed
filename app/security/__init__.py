"""What needs a signature, a hash or a role."""
