"""Services that change what a table is: its columns, contract, format and sinks."""
