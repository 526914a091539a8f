"""Reading a log with hindsight: export, replay, verify, story, why, diff, conservation.

Everything here is a pure function over the records of a log; only `sources` opens one. The services with
cores to be run arrive as a parameter.
"""
