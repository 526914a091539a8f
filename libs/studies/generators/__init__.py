"""Workloads made from a description instead of read from a file, and a table of rates to go with them."""
