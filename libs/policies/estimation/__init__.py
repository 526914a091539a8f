"""How jobs that nobody has measured together would share GPUs: the Gavel paper's throughput estimator (section 6)."""
