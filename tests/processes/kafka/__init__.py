"""Stress of the Kafka sink: ``python -m tests.processes.kafka``."""
