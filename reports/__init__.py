"""Verdicts and records turned into figures, tables and pages."""
