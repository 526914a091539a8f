"""Quota: whose share is it?"""
