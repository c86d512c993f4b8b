"""Models for machine translation."""
