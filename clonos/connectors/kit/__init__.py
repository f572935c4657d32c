"""Parts that connectors to brokers share: a new one is a source, a sink and what is true of its broker alone."""
