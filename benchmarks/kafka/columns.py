"""The columns of the events, for environments that have Spark and nothing else."""

SCHEMA = (
    "id bigint, at bigint, carrier string, origin string, dest string, delay double, "
    "distance bigint, note string"
)
COLUMNS = [pair.split()[0] for pair in SCHEMA.split(", ")]
