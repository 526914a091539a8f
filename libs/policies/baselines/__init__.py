"""What other schedulers do, to compare with."""
