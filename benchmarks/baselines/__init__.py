"""The limit: the same work as plain processes without fault tolerance."""
