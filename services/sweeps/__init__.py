"""Sweeps: which trial is next, and which is hopeless?"""
