"""Data parallelism whose result does not depend on the number of processes (Gandiva's grow-shrink, made exact).

virtual.py (which part of a batch is whose) ─> shards.py (a batch, part by part) ─> tree.py (one order of summation)
"""
