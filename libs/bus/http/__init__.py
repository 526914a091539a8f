"""The log of a cell through its gateway: for agents on machines that do not reach the log itself."""
