"""Attacks on a running job: strangers, wrong keys, lying slots."""
