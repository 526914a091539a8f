"""What is said on the log: events, requests, job and cluster specs, and their form on the wire.

Imports nothing of the project. Everything else speaks in these words.
"""
