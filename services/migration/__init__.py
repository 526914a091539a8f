"""Migration: what should move?"""
