"""Shells around the operating system: sockets, files, processes, clocks, entropy and the HTTP client.

A shell performs the effects that the machines of the core request, and reports what happens as events. Timeouts and
back-pressure of the protocol belong to the machines; a shell retries only where no other component is concerned, as
``connection`` does when it reopens a broken connection with backoff. Only this package imports zmq.
"""
