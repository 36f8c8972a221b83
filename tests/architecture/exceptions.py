"""What exceeds a limit, and why. An entry that exceeds nothing any more fails the test."""

from __future__ import annotations

LONG_FILES: dict[str, str] = {}
LONG_TESTS: dict[str, str] = {}
NESTED: dict[str, str] = {}
LONG_FUNCTIONS: dict[str, str] = {}
MANY_PARAMETERS: dict[str, str] = {
    "src/plait/cli/commands/compaction.py:cluster": "one for each option of the command",
    "src/plait/cli/commands/repair.py:repair": "one for each option of the command",
    "src/plait/cli/commands/replicas.py:replicas": "one for each option of the command",
    "src/plait/cli/commands/restores.py:replay": "one for each option of the command",
    "src/plait/cli/commands/restores.py:restore": "one for each option of the command",
    "src/plait/cli/commands/restores.py:savepoint": "one for each option of the command",
    "src/plait/cli/commands/services.py:rollback": "one for each option of the command",
    "src/plait/cli/commands/services.py:clean": "one for each option of the command",
    "src/plait/cli/commands/repush.py:repush": "one for each option of the command",
    "src/plait/cli/commands/sink.py:sink": "one for each option of the command",
    "src/plait/cli/commands/serve_catalog.py:serve_catalog": "one for each option of the command",
    "src/plait/cli/commands/stream.py:stream": "one for each option of the command",
    "src/plait/cli/commands/tables.py:create": "one for each option of the command",
    "src/plait/table.py:Table.writer": "one argument for each thing a write can be told",
    "src/plait/spark/stream.py:foreach_batch": "what a stream is told, by name, in one call",
    "src/plait/repush/table_repush.py:Layout.repush": "each part of a layout by name",
    "src/plait/write/table_writes.py:Writes.merge": "each list of clauses by name, as every write",
    "src/plait/write/table_writes.py:Writes.overwrite": "what a write is told by name, in one call",
    "src/plait/txn/transaction.py:OptimisticTransaction.commit": "how to stage again, by name",
    "src/plait/write/request.py:write_request": "what a write is told by name, in one call",
    "src/plait/definition/create.py:define_table": "what defines a table, by name, in one call",
    "src/plait/definition/create.py:define_layout": "each part of a layout by name",
    "src/plait/cli/commands/importing.py:import_": "one parameter an option",
    "src/plait/repush/bring.py:import_table": "what defines a table is given by name, in one call",
    "src/plait/repush/source.py:read_source": "what it is, how it is reached, and for whom",
    "src/plait/table.py:Table.create": "what defines a table is given by name, in one call",
}
MANY_METHODS: dict[str, str] = {
    "src/plait/testing/sink_kit.py:SinkKit": "a conformance kit: each method is a test",
    "src/plait/testing/store_kit.py:StoreKit": "a conformance kit: each method is a test",
}
