"""Runs on several devices: who computes what, and how the results come together."""
