"""API of one job over its handle: documents, routes, events, and the server thread of a driver (docs/console.md)."""
