"""Files on the local disk: the folder of a process, and spilled segments."""
