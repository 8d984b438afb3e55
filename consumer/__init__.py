"""Apply: Kafka → target sets on Spark, and reading topics. Never imports ``producer``: they meet in the record."""
