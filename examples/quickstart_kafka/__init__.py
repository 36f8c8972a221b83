"""The Kafka quickstart: flights as events, three sink processes, one is killed."""
