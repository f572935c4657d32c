"""Files in object stores: their URLs, their inputs and their outputs."""
