"""Plan of a job: the compiler from steps to vertices, splits of sources, order of records, pictures of the graph."""
