"""Tests of this project in simulated worlds and on real processes: in a checkout, not in the wheel."""
