"""The client libraries of other authors that read from a schema registry, and Apicurio's registry.

asking.py       what a client is asked, and answers
programs.py     clients that are programs in other languages: node/, go/, rust/, built in $MILLRACE_HOME/clients
confluent.py    Confluent's client for Python
apicurio.py     Apicurio's deserializers, in a JVM that Python drives
requests.py     the requests that each client makes: the chaos test compares them, a test of `make test` repeats them
line.py         a proxy that notes requests
server.py       Apicurio's registry as a server on loopback
"""
