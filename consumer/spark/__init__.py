"""The only package that uses Spark: the session, the query over a topic, the JVM, scratch folders."""
