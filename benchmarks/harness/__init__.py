"""How it is measured: isolated runs, pairs, kills, plots."""
