"""Where data and models lie: paths, URIs, and the hosts that may be reached."""
