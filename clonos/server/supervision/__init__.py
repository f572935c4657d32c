"""Drivers of jobs as processes of their own: their start, their end, their adoption, and what users ask of them."""
