"""The log behind one port, with three adapters: kafka, embedded (SQLite) and memory.

All three pass the same contract suite (`libs/testing/bus_contract.py`).
"""
