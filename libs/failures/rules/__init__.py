"""The rules, a file per subject."""
