"""What connectors to brokers have in common: a new one is a source, a sink and what is true of its broker alone."""
