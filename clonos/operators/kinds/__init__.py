"""Kinds of records below an operator: Python objects, or typed columns."""
