"""Policies with time slices: jobs take turns on over-subscribed servers."""
