"""What `trainyard.client` consists of: requests, and one module for each resource."""
