"""Files in folders ``column=value``, as Hive lays out tables: their names, a writer and a reader."""
