"""The verbs of the command line: flags, then one call. What they do lives elsewhere."""
