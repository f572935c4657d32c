"""Methods of streams by theme; ``clonos.api.stream`` and ``clonos.api.keyed_stream`` join them."""
