"""Files as columns: formats whose sources and sinks work on Arrow's record batches; they load Arrow."""
