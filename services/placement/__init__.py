"""Placement: which GPUs, when?"""
