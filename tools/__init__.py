"""The project's own programs: the scripts behind make, and Python ones run as `python -m tools.X`."""
