"""Tasks and models: what is trained, on what, and how, as one tree of params."""
