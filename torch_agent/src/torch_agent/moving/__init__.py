"""States of moving tasks go from agent to agent: sending.py at the source, taking.py at the destination.

The destination connects, asks for one rank's state with one line of JSON, and gets a line that says how many bytes
follow (or why none do), the bytes, and their checksum.
"""
