"""Tools of the benchmarks: isolated runs, pairs, kills, plots."""
