"""Operators on columns: their state is numpy columns by slot, and no step makes a Python object per record."""
