"""Services: documents, replicas and how many of them run, endpoints, and what gateways count."""
