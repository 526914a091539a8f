"""Data parallelism with a result that does not depend on the number of processes (Gandiva's grow-shrink, made exact).

virtual.py (which parts a rank gets) ─> shards.py (a batch, part by part) ─> tree.py (one order of summation)
"""
