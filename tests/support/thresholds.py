"""Every size at which the code takes another path, and a way to run anything with all of them at 1.

    python -m tests.support.thresholds pytest -q tests/property/test_table_machine.py
    python -m tests.support.thresholds --stepped scripts/histories.py --seeds 50

A table of a test has three rows, so what happens above 16,384 files, in the second block of a key
index, or in a file beside a decision would not be seen in any of them. Here such a number is
replaced in the source while a module is loaded. So whatever is made of it follows: a default of a
parameter, a number computed from it, and its copy in another module. Processes that a test starts
do the same, since an environment variable tells them (``tests/__init__.py``).

``tests/architecture/test_thresholds.py`` refuses a number that is in none of these lists.
"""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Final

STEPPED: Final = "stepped"
SWITCH: Final = "PLAIT_TEST_THRESHOLDS"
"""The environment variable; ``1`` lowers all thresholds, ``stepped`` all but THREADED."""
ROOT: Final = Path(__file__).resolve().parents[2]
SOURCE: Final = ROOT / "src" / "plait"

LOWEST: Final[Mapping[str, str]] = {
    "arrow.check": "PIECE_BYTES",
    "arrow.ingest": "_NARROW",
    "arrow.memory": "MAPPED_MIN",
    "arrow.output": "_SAMPLE_ROWS_MIN _SAMPLE_ROWS _KEYS_MIN",
    "arrow.sinks": "OPEN_MAX",
    "arrow.staging": "_ASKED_MAX",
    "expr.prune": "POINTS_MAX LOOKED_AT_MAX",
    "files.data_file": "_AT_ONCE",
    "files.deletion": "INLINE_BYTES_MAX",
    "files.digest": "_FEW",
    "files.hash": "INLINE_KEYS_MAX _BLOCK _MATRIX_LENGTH_MAX _MATRIX_ROWS_MIN",
    "files.key_index": "BLOCK_ENTRIES",
    "files.reader": "BATCH_ROWS_MAX BATCH_BYTES _BATCH_ROWS_MIN",
    "files.row_map": "INLINE_BYTES_MAX",
    "files.writer": "GROUP_ROWS ORDERED_GROUP_ROWS GROUP_BYTES",
    "index.builder": "MEMORY_BYTES",
    "interop.delta": "BEHIND_MAX FOREIGN_BYTES_MAX INLINE_FILES_MAX",
    "interop.delta_log": "_DELETED_AT_ONCE",
    "interop.iceberg": "ENTRIES_MAX _SPARSE _MANIFESTS_FEW",
    "interop.iceberg_sweep": "_DELETED_AT_ONCE",
    "index.lookup": "_ALONE _BLOCKS_KEPT",
    "index.merge": "FILE_ENTRIES",
    "index.run_file": "BLOCK _STRETCH",
    "index.window": "FOLD_LAG_MAX LAG_MAX",
    "kafka.control": "_BATCH",
    "kafka.dead_letters": "WINDOW",
    "kafka.records.json_values": "_PIECE_MIN",
    "kafka.member": "_FEW _SMALL",
    "kafka.memory": "DECODED",
    "kafka.topic_sink": "_DECODED _POLLED",
    "queries.compare": "_PART_ROWS _ROWS_AT_ONCE",
    "read.change_scan": "_FILE_BYTES _GROUP_BYTES",
    "read.key_sort": "SORT_BYTES",
    "read.native": "FILES_MAX HIDDEN_MAX MASKED_ROWS_MAX",
    "read.scan": "DEPTH _GROUP_ROWS",
    "read.splits": "SPLIT_BYTES FILES_MAX",
    "replicate.compare": "PART_ROWS",
    "replicate.repair": "_BATCH_ROWS",
    "replicate.sql_sink": "_FETCH",
    "replicate.staging": "_BATCHES_MAX _BYTES_MAX",
    "repush.begin": "ROWS_PER_TASK",
    "services.maintenance.archive": "_DECISIONS_MAX",
    "services.index.build": "WRITER_ENTRIES_MAX",
    "services.index.verify": "_AT_ONCE",
    "services.verify.contents": "_HASHES_MAX",
    "services.verify.state_replay": "_TAIL_MAX",
    "services.verify.stored": "_CHUNK",
    "spark.masks": "_LOOKED_MAX",
    "spark.route": "_TASKS_SOME _GROUPS_MANY",
    "spark.scan": "HELD_MAX _COMPARED_MAX",
    "spark.shares": "SHARE_BYTES",
    "spark.source": "_SHARE_BYTES",
    "state.cache": "_NEAR _TAIL_MAX",
    "state.checkpoint": "MERGED_ROWS_MAX",
    "state.part_file": "GROUP_ROWS WHOLE_BYTES_MAX _GROUPS_AT_ONCE",
    "state.selected": "WHOLE_ROWS_MAX _KEPT_ROWS_MAX",
    "storage.disk": "_ANCHORED_MAX",
    "storage.probe": "_KNOWN_MAX",
    "storage.s3": "_DELETE_MAX _ONE_BY_ONE_MAX",
    "timeline.archive": "BYTES_MAX",
    "timeline.log": "INLINE_ROWS_MAX",
    "txn.key_window": "_NEAR",
    "txn.heartbeat": "_READ_MAX",
    "txn.rollback": "BATCH_MAX _BATCH_TEXT_MAX",
}
"""What is 1 where thresholds are lowered, by module of ``plait``."""
LOW: Final[Mapping[str, Mapping[str, int]]] = {
    "arrow.runs": {"FAN_IN": 2},  # a merge of one run makes one run of it
    "files.footer": {"_TAIL_BYTES": 8},  # the length of the footer and the magic number
    "read.key_sort": {"_FAN_IN": 2},
    "services.maintenance.clean": {
        "_CONDEMNED_MAX": 5
    },  # with fewer, cleans do not keep up with commits
}
"""What cannot be 1."""
THREADED: Final = (
    *("index.lookup._ALONE", "read.scan._GROUP_ROWS"),
    *("write.bucket.size", "write.buffer.size"),
)
"""From these on, threads do the work, which no schedule of ``tests/scheduler`` can step."""

OPTIONS: Final = ("plait.model.contract", "checkpoint.interval")
"""Where options are, and what is 1 by default beside all options that are sizes."""

FORMAT: Final[Mapping[str, str]] = {
    "arrow.cast": "_INT64_DIGITS",
    "arrow.curve": "_BITS_MAX _BITS",
    "cli.view": "_KIB",
    "expr.cast": "_INT64_DIGITS _DECIMAL_DIGITS",
    "spark.route": "_LONG_MIN",
    "expr.functions": "_INT64_MAX",
    "expr.implied": "_PARTS_A_LEAF",
    "files.data_file": "NO_VERSION",
    "files.digest": "_MASK",
    "interop.delta_actions": "_DIGITS_EXACT",
    "interop.iceberg": "_KEY_BITS",
    "files.footer": "_END_BYTES COLUMNS_MAX LENGTH_MAX",
    "files.hash": "_WIDTH SEED _LONG_DIGITS_MAX _STRIPE _PAD",
    "files.key_index": "_WIDTH",
    "files.keys": "_NUMBER_BYTES",
    "files.roaring": (
        "ROWS_A_CONTAINER CONTAINER_BYTES_MAX _NO_RUNS _WITH_RUNS _OFFSETS_FROM _ARRAY_MAX"
        " _BITSET_BYTES _CONTAINERS_MAX _KEY_BITS _KEYS_MAX"
    ),
    "files.row_map": "_WIDTH",
    "index.builder": "_BYTES_AN_ENTRY",
    "index.merge": "_HASHES",
    "index.run_file": "ENTRY_BYTES _DIRECTORY",
    "kafka.records.avro.columns": "_SHORT _NARROW _UUID_BYTES",
    "kafka.records.avro.cursors": "_PAD _MORE _LAST_SHIFT",
    "kafka.records.avro.decoder": "HEADER",
    "kafka.records.avro.walk": "_MORE",
    "kafka.control": "_PARTITION",
    "kafka.memory": "_MIB",
    "kafka.membership": "_NO_PARTITION",
    "kafka.records.registry": "_NOT_FOUND _BROKEN",
    "kafka.task": "_LEADS",
    "locks.identity": "FORMAT_VERSION",
    "model.bucket": "UNKEYED",
    "model.order": "NO_ORDER KEY_ORDER",
    "arrow.restage": "NOT_DECIDED",
    "model.decision": "_MODULO UNPUBLISHED",
    "model.schema": "WRITTEN_ID",
    "read.join": "_ROW_BYTES",
    "repush.delta_vectors": "_UUID_CHARS",
    "read.points": "ANY",
    "read.scan": "_SIZE_MAX",
    "services.maintenance.compaction": "_PERCENT",
    "definition.evolving": "_SUFFIX_CHARS",
    "definition.table_def": "_FAR",
    "state.selected": "_PIECE_KEY",
    "storage.exclusive": "_RENAME_NOREPLACE",
    "storage.memory": "_ANY",
    "storage.mounts": "_BEFORE_KIND",
    "storage.probe": "PROBE_VERSION",
    "storage.race": "BODY_BYTES",
    "storage.tree": "MODE",
    "stream.message_schema": "VERSION",
    "definition.features": "FORMAT_VERSION",
    "timeline.paths": "_BLOCK",
    "model.document": "_DIGITS",
}
"""Parts of a format or of a language, numbers that stand for something, and units."""
REFUSED: Final[Mapping[str, str]] = {
    "catalog.names": "_CHARACTERS_MAX",
    "catalog.rest": "TARGET_BYTES_MAX _PAGE_MAX",
    "catalog.server": (
        "_TOKEN_BYTES_MAX _TOKEN_CHARACTERS_MIN _HEADER_BYTES_MAX _CONNECTIONS_MAX _THREADS"
    ),
    "cli.file_options": "_BYTES_MAX _DEPTH_MAX",
    "expr.functions": "_CONCAT_BYTES_MAX",
    "expr.parser": "_TEXT_MAX _TOKENS_MAX _JOINS_MAX DIGITS_MAX _FRAMES",
    "expr.sql": "ARGUMENTS_MAX",
    "expr.tree": "DEPTH_MAX LEAVES_MAX VALUES_MAX PATTERN_MAX",
    "files.footer": "THRIFT_BYTES_MAX _FOOTER_BYTES_MAX GROUP_BYTES_FREE",
    "files.key_index": "_ROWS_MAX",
    "files.row_map": "TARGET_ROWS_MAX",
    "index.entries": "VERSIONS_MAX PLACES_MAX",
    "interop.delta": "_VECTORS_BYTES_MAX",
    "interop.delta_log": "MARK_BYTES_MAX _LOOKED_AT_MAX _COMMIT_BYTES_MAX _NUMBER_MAX",
    "interop.iceberg_metadata": "BYTES_MAX _LOOKED_AT_MAX",
    "interop.publisher": "NUMBERS_MAX STRIDE_MAX",
    "index.manifest": "_BYTES_MAX _HINT_BYTES_MAX",
    "index.run_file": "_PLACES_BYTES_MAX",
    "index.window": "ENTRIES_MAX",
    "kafka.records.avro.columns": "_DIGITS_MAX _DEEP _EMPTY_ITEMS_MAX _SIZE_MAX",
    "kafka.records.avro.cursors": "STEPS_BYTE STEPS_PART STEPS_RECORD",
    "kafka.records.avro.decoder": "_BODY_MAX _COUNTED_MAX",
    "kafka.records.avro.schema": "_DEEP _SIZE_MAX _DIGITS_MAX PARTS_MAX _JSON_DEEP _TEXT_MAX",
    "kafka.records.avro.walk": "_DEEP _EMPTY_ITEMS_MAX _BITS_MAX",
    "kafka.records.json_values": "_BODY_MAX",
    "kafka.monitoring": "_PORT_MAX",
    "kafka.records.registry": "_BODY_MAX _ABSENT_MAX _REFERENCES_MAX _VERSION_MAX",
    "kafka.settings": "_TOPIC_MAX",
    "kafka.sources": "_OFFSET_MAX _PARTITION_MAX",
    "locks.file": "_RECORD_BYTES_MAX",
    "locks.identity": "IDENTITY_BYTES_MAX",
    "model.document": "DEPTH_MAX NODES_MAX",
    "model.bucket": "BUCKETS_MAX",
    "model.order": "_ID_MAX",
    "model.partitioning": "_SIZE_MAX",
    "model.schema": "DECIMAL_DIGITS_MAX NESTING_MAX FIELDS_MAX CHECKS_MAX NAME_CHARS_MAX _ID_END",
    "definition.ttl": "_AFTER_MAX",
    "repush.begin": "_ROWS_PER_TASK_MAX",
    "repush.iceberg": "_HINT_MAX",
    "services.verify.backup": "_FILE_BYTES_MAX",
    "spark.checkpoint": "_BYTES_MAX",
    "spark.java": "VERSION_MIN",
    "state.checkpoint": "_STATE_BYTES_MAX _HINT_BYTES_MAX _NODES_MAX",
    "state.part_file": "_ROWS_MAX",
    "storage.local": "DEPTH_MAX",
    "storage.port": "FIND_BYTES_MAX",
    "storage.probe": "_HINT_BYTES_MAX",
    "stream.coordinator": "_WRITERS_MAX _PARTED_MAX",
    "stream.message_schema": (
        "NAME_MAX OFFSET_MAX ERROR_MAX _LIFE_MAX _PATH_MAX _ENTRIES_MAX _NUMBER_MAX _COUNT_MAX"
        " _HASH_MAX"
    ),
    "stream.messages": "BYTES_MAX FILE_BYTES_MAX TURNS_MAX _DEPTH_MAX",
    "stream.stream": "_NAME_MAX _OFFSETS_MAX",
    "timeline.codec": "SLOT_BYTES_MAX",
    "timeline.columns": "BYTES_MAX",
    "timeline.external_commits": "_POINTER_BYTES_MAX",
    "timeline.pending": "_BYTES_MAX _MARK_MAX",
    "timeline.replica_records": "_BYTES_MAX",
    "txn.conflict_checker": "_WINDOW_MAX",
    "txn.read_pin": "_BYTES_MAX",
    "txn.liveness_cache": "_BEAT_BYTES_MAX",
}
"""Limits: what is beyond them is an error, or counts as unknown, and takes no other path."""
TOLD: Final[Mapping[str, str]] = {
    "arrow.check": "_SHOWN_COLUMNS",
    "arrow.keyed": "_SAMPLE",
    "arrow.merge": "_SAMPLE",
    "arrow.resolve": "_SAMPLE",
    "cli.flow": "BAR_WIDTH",
    "cli.text": "_UNLIMITED",
    "errors": "_PIECE_MIN _SCHEME_MAX",
    "files.sample": "_COLUMNS _CHARS",
    "kafka.records.avro.cursors": "_REASON_MAX",
    "kafka.records.decode": "_REASON_MAX",
    "interop.delta_log": "_NAME_CHARS",
    "interop.iceberg_metadata": "SNAPSHOTS_MAX _NAMED_MAX",
    "kafka.inference": "_SAMPLE",
    "kafka.records.registry": "_SHOWN",
    "kafka.status": "_NEWEST",
    "model.bucket": "_READABLE_MAX",
    "model.value": "_SHOWN",
    "queries.explain": "_SAMPLE",
    "replicate.lane": "_SHOWN",
    "replicate.repair": "_SHOWN",
    "services.verify.contents": "_SAMPLE",
    "services.verify.history": "_HELD",
    "services.verify.report": "_PROBLEMS_MAX _TEXT_MAX",
    "spark.reader": "_SAMPLE",
    "state.lineage": "_LATE_MAX",
    "storage.fsspec_store": "_SAID_MAX",
    "definition.features": "_SHOWN _NAME_SHOWN _FACTS_MAX",
    "storage.s3": "_SAID_MAX",
    "txn.commit": "_RECORDED_MAX",
    "txn.conflict": "_SAMPLE",
    "txn.read_pin": "_HOST_MAX",
    "txn.refusal": "_SAMPLE",
    "txn.liveness_cache": "_DOUBTS_MAX",
    "txn.tokens": "_SHOWN",
    **{
        f"cli.commands.{name}": "_SHOWN"
        for name in (
            *("compaction", "compare", "diff", "expiry", "foreign", "repair", "restores"),
            *("services", "stream", "timeline"),
        )
    },
    "cli.commands.tables": "_FILES_SHOWN",
}
"""How much of something is told or remembered."""
PACE: Final[Mapping[str, str]] = {
    "arrow.keyed": "_MANY_FOLD",
    "arrow.output": "_SAMPLE_SHARE _DISTINCT_MAX _BUFFER_A_HASH",
    "arrow.places": "_SHARE",
    "arrow.resolve": "_MANY_FOLD",
    "index.lookup": "_READERS",
    "interop.delta_log": "LOOKS_MAX",
    "interop.iceberg_metadata": "LOOKS_MAX",
    "interop.publisher": "LOSSES_MAX",
    "index.run_file": "_GAP",
    "kafka.client": "_TRIES _LOOKS",
    "kafka.dead_letters": "_KEPT",
    "kafka.records.avro.decoder": "_SMALLER _LARGER",
    "kafka.records.decode": "_ALONE _SMALLER _LARGER",
    "kafka.monitoring": "_ROUNDS",
    "kafka.inference": "_TRIES",
    "kafka.control": "_ANSWERED_MAX",
    "kafka.records.json_values": "_THREADS_MAX",
    "kafka.leading": "_FAILURES_MAX",
    "kafka.member": "_GAPS_MAX",
    "kafka.memory": "_BUFFERS _BUFFER_MIN _QUEUE_MIN _QUEUE_MAX _QUEUE_SHARE",
    "kafka.records.registry": "_DOUBTS_MAX _CHUNK",
    "kafka.records.row_check": "_ALONE",
    "kafka.settings": "_ALL",
    "kafka.topic_sink": "_IDLE_MAX",
    "locks.queue": "_LOOKS",
    "locks.zookeeper": "_ATTEMPTS",
    "locks.zookeeper_queue": "_CLAIMS_MAX",
    "queries.compare": "_PARTS_MAX",
    "read.scan": "WIDTH_MAX",
    "read.slices": "_GROUPS_A_KEY",
    "replicate.compare": "_PARTS_MAX",
    "repush.run": "_SOON _PAUSE_SHARE _LAST_ROUNDS",
    "services.maintenance.archive": "_CHECKPOINTS _FULL _DUE",
    "services.maintenance.clean": "_CHECKPOINTS_KEPT",
    "services.maintenance.compaction": "_SMALL",
    "services.index.build": "_GROWTH",
    "services.index.files": "_KEPT",
    "services.index.publish": "ROUNDS_MAX",
    "services.index.record_index": "_FOLDS_MAX _BUILDS_MAX",
    "services.maintenance.runner": "_LOOKS",
    "services.verify.state_replay": "_COMPARED",
    "spark.job": "_A_CORE _A_CORE_NEW",
    "spark.masks": "_LOADERS",
    "spark.route": "_SHIFTS",
    "spark.sink": "_PATIENCE _WATCHES_MAX",
    "state.cache": "_LOOKS_MAX",
    "state.checkpoint": "_GROWTH",
    "storage.objects": "ATTEMPTS_MAX",
    "timeline.external_commits": "KEPT",
    "definition.create": "_BUCKETS_UNPARTITIONED",
    "txn.liveness": "_BEATS",
    "txn.publish": "_TRIES",
    "txn.read_pin": "_RENEWALS",
    "txn.reservation": "_LOOKS _POLL_SHARE _REST _SILENT",
}
"""How often, how many at once, in what proportion, and how many are kept; ``_FULL`` follows."""
TIME: Final = re.compile(r"(^|_)(S|MS|US)(_MAX|_MIN|_NEXT)?$|_S$")
"""Names of times end with their unit."""


def names(listed: Mapping[str, str]) -> set[str]:
    """Return ``module.NAME`` of each constant in a list."""
    return {f"{module}.{name}" for module, text in listed.items() for name in text.split()}


def thresholds(*, stepped: bool = False) -> dict[str, int]:
    """Return what each threshold becomes, by ``module.NAME``; ``stepped``: in one thread."""
    low = {f"{module}.{name}": to for module, told in LOW.items() for name, to in told.items()}
    every = dict.fromkeys(sorted(names(LOWEST)), 1) | low
    return {each: to for each, to in every.items() if not stepped or each not in THREADED}


def numbers(source: str) -> Iterator[str]:
    """Yield the names of the constants of a module that are made of numbers alone."""
    for node in ast.parse(source).body:
        found = _assigned(node)
        if found is not None and _is_number(found[1]):
            yield found[0]


def _assigned(node: ast.stmt) -> tuple[str, ast.expr] | None:
    """Return the constant that a statement names, and its value; None if it names none."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target, value = node.targets[0], node.value
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        target, value = node.target, node.value
    else:
        return None
    if isinstance(target, ast.Name) and target.id.strip("_").isupper():
        return target.id, value
    return None


def _is_number(value: ast.expr) -> bool:
    """Tell whether an expression has a number in it, and names and arithmetic beside it."""
    parts = [each for each in ast.walk(value) if isinstance(each, ast.expr)]
    constants = [each.value for each in parts if isinstance(each, ast.Constant)]
    plain = all(
        isinstance(each, ast.Constant | ast.BinOp | ast.UnaryOp | ast.Name) for each in parts
    )
    return plain and bool(constants) and all(type(each) in (int, float) for each in constants)


class _Lowering(SourceFileLoader):
    """Compiles a module anew, with some of its constants replaced; nothing of it is cached."""

    def __init__(
        self, name: str, path: str, told: Mapping[str, int], kept: Sequence[str] = ()
    ) -> None:
        super().__init__(name, path)
        self._told, self._kept = told, kept

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        tree = ast.parse(self.get_data(path), path)
        for node in tree.body:
            found = _assigned(node)
            if found is not None and found[0] in self._told:
                lowered = ast.copy_location(ast.Constant(self._told[found[0]]), found[1])
                node.value = lowered  # type: ignore[attr-defined]  # an assignment has one
        if fullname == OPTIONS[0]:
            _lower_options(tree, self._kept)
        return compile(tree, path, "exec", dont_inherit=True)


def _lower_options(tree: ast.Module, kept: Sequence[str]) -> None:
    """Make 1 what an option is by default, if that is a size: ``Option(key, kind, default)``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) > 2:
            key, kind, default = (getattr(each, "value", None) for each in node.args[:3])
            sized = kind == "size" and key not in kept
            if node.func.id == "Option" and default and (sized or key in OPTIONS):
                node.args[2] = ast.copy_location(ast.Constant("1"), node.args[2])


class _Finder(MetaPathFinder):
    """Finds the modules that have thresholds."""

    def __init__(self, *, stepped: bool) -> None:
        self._told: dict[str, dict[str, int]] = {OPTIONS[0]: {}}
        self._kept = THREADED if stepped else ()
        for each, to in thresholds(stepped=stepped).items():
            module, _, name = each.rpartition(".")
            self._told.setdefault(f"plait.{module}", {})[name] = to

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self._told:
            return None
        found = PathFinder.find_spec(fullname, path, target)
        if found is not None and found.origin is not None:
            told = self._told[fullname]
            found.loader = _Lowering(fullname, found.origin, told, self._kept)
        return found


def lower() -> None:
    """Lower every threshold of what this process imports from now on.

    Raises:
        RuntimeError: a part of it was imported before, and would have the thresholds as they are.
    """
    if are_low():
        return
    early = [name for name in sys.modules if name.startswith("plait.")]
    if early:
        message = f"import tests before plait: {early} have their thresholds already"
        raise RuntimeError(message)
    sys.meta_path.insert(0, _Finder(stepped=os.environ.get(SWITCH) == STEPPED))


def are_low() -> bool:
    """Tell whether this process runs with all thresholds lowered."""
    return any(isinstance(each, _Finder) for each in sys.meta_path)


def main(arguments: Sequence[str]) -> None:
    """Run pytest, or a program, with all thresholds lowered; never returns."""
    if not arguments:
        sys.exit(str(__doc__))
    stepped = arguments[0] == f"--{STEPPED}"
    program, *rest = arguments[1:] if stepped else arguments
    os.environ[SWITCH] = STEPPED if stepped else "1"
    if program.endswith(".py"):
        os.execv(sys.executable, [sys.executable, program, *rest])
    os.execv(sys.executable, [sys.executable, "-m", program, *rest])


if __name__ == "__main__":
    main(sys.argv[1:])
