"""Admission: can this job ever run here?"""
