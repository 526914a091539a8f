"""Quota: which tenant's share is it?"""
