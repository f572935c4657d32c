"""``clonos check``: what a job does that a replay would not repeat, for a terminal, an editor or a build."""
