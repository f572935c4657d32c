"""Functions of Python and of libraries that are answered otherwise in chosen code, such as clocks."""
