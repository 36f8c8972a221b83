"""Begin, stage, validate, publish, finish; conflicts, recovery, heartbeats."""
