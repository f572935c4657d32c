"""Ports of the core: protocols that connect it to task threads, slot processes and operators."""
