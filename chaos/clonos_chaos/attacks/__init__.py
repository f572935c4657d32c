"""Attacks on a running job: unknown peers, wrong keys, lying slots."""
