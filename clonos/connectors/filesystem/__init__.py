"""Files as sources and sinks: formats, splits, output folders and their manifests."""
