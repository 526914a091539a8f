"""Fixtures shared by all tests; loaded as a pytest plugin."""
