"""The peers: the same word count in other systems, each in a process and an environment of its own."""
