"""The project's own programs: scripts behind make, and Python ones run as `python -m tools.X`."""
