"""Machine translation, many languages in one model."""
