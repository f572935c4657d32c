"""The shells that touch the outside: sockets, files, threads, the wall clock, real luck and the HTTP client.

Shells perform the effects that the machines of the core ask for and turn what happens into events. Timeouts and
back-pressure that the protocol depends on belong to the machines. A shell retries where nobody else is concerned:
``connection`` reopens a broken connection with backoff. The only importer of zmq.
"""
