"""Which devices there are, and which stage goes to which."""
