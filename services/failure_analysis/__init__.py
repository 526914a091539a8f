"""Failure analysis: why did it fail, and what follows?"""
