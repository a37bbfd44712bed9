"""Estimates, decisions and verdicts."""
