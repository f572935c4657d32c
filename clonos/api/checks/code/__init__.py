"""Looks at the functions of a job: what a replay would not repeat, with a code, a place and what to write instead."""
