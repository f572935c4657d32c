"""The shells that touch the outside: sockets, files, threads, the wall clock, real luck and the HTTP client.

Shells perform the effects that the machines of the core ask for and turn what happens into events. They decide nothing:
timeouts, retries and back-pressure belong to the machines. The only importer of zmq.
"""
