"""How jobs share GPUs that were not measured together: the Gavel paper's throughput estimator (section 6)."""
