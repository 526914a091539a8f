"""Realises an allocation in rounds (Gavel, OSDI'20, section 5)."""
