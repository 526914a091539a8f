"""Failure analysis: why did it fail, and can a retry help?"""
