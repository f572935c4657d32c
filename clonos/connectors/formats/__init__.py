"""Further formats of files: text, compressed part files, whole files, and Avro."""
