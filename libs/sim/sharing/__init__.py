"""Jobs that share a simulated GPU: what each asks of it, and how fast each is there."""
