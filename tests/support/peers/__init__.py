"""Programs of other people as processes: RocketMQ's nodes and tools in Java, the stock clients,
Spark, and proxies that record what they say. Fetched or built before the first test needs them.
"""
