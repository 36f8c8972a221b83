"""Check the specification of the commit (docs/spec/commit.tla) with TLC.

Every model must hold: no invariant is violated in any order of any step. And every rule must be
needed: with it left out, the model that is named for it must break the invariant that is named.
So a model that is too small to show anything fails as well. ``--long`` checks the large models,
which take many minutes: some are those of the same name with more keys, versions or actors. What
was found stands in docs/spec/model.md; ``--write`` brings that up to date, and without it a page
that says something else fails. ``--short`` checks a part of them, and by a digest that what the
page says was found of this very specification.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from scripts.tlc import Result, Tlc, TlcMissingError, find_tlc, run

SPEC = Path(__file__).resolve().parent.parent / "docs" / "spec"
MODULE = SPEC / "commit.tla"
PAGE = SPEC / "model.md"
BEGIN, END = "<!-- made by scripts/spec.py -->", "<!-- end -->"
MODEL_S, LONG_S, LONG_HEAP = 240, 7200, "6g"
SHORT_MODELS, SHORT_RULES = ("core", "archive", "rows", "unique"), 6
"""The models of the short form, and of how many rules it checks one."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule, the model that shows its need, and the invariant that breaks without it."""

    name: str
    model: str
    breaks: str


RULES = (
    Rule("rollback_in_slots", "core", "INV_03"),
    Rule("own_time", "core", "TimesUnique"),
    Rule("own_rollback_from_v0", "core", "INV_03"),
    Rule("base_after_record", "base", "INV_05"),
    Rule("list_after_decision", "clean", "INV_05"),
    Rule("decision_before_delete", "core", "INV_06"),
    Rule("names_stay", "archive", "INV_02"),
    Rule("read_back", "core", "INV_10"),
    Rule("bucket_unit", "core", "INV_07"),
    Rule("tokens_stay", "tokens", "INV_09"),
    Rule("rows_compared", "takeover", "ReplaysAreTrue"),
    Rule("previous_checkpoint", "archive", "INV_11"),
    Rule("nothing_staged", "recovery", "NoOrphans"),
    Rule("announce_first", "recovery", "NoOrphans"),
    Rule("archive_included", "archive", "INV_03"),
    Rule("archive_behind_both", "archive", "INV_11"),
    Rule("body_kept", "bodies", "NamedIsThere"),
    Rule("named_first", "bodies", "BodyKept"),
    Rule("end_looked_for", "bodies", "DecidedOnce"),
    Rule("archive_replans", "bodies", "BodyKept"),
    Rule("clean_replans", "restore", "INV_05"),
    Rule("savepoints_kept", "restore", "INV_05"),
    Rule("final_before_delete", "grace", "INV_05"),
    Rule("undo_before_final", "grace", "INV_05"),
    Rule("lease_first", "clean", "INV_05"),
    Rule("missing_is_error", "clean", "INV_04"),
    Rule("services_yield", "services", "ServicesYield"),
    Rule("times_grow", "bounds", "BoundsStay"),
    Rule("settled", "bounds", "BoundsStay"),
    Rule("record_first", "single", "Alone"),
    Rule("older_waits", "single", "Alone"),
    Rule("dead_are_ended", "single", "Alone"),
    Rule("masks_followed", "rows", "RowsAreRight"),
    Rule("removals_followed", "rows", "RowsAreRight"),
    Rule("each_rewrite", "rewrites", "RowsAreRight"),
    Rule("head_masks", "rows", "MaskedStays"),
    Rule("writers_go_on", "rows", "WritersGoOn"),
    Rule("masks_carried", "rows", "MaskedStays"),
    Rule("carried_again", "rows", "OneRowAKey"),
    Rule("nothing_came_back", "undo", "RowsAreRight"),
    Rule("expiry_redone_by_copiers", "expiry", "MaskedStays"),
    Rule("expiry_drafted_anew", "expiry", "RowsAreRight"),
    Rule("undone_raises", "lineage", "NoGap"),
    Rule("position_stays", "lineage", "AppliedAgain"),
    Rule("replay_to_lineage", "lineage", "OnceInOrder"),
    Rule("replay_can_be_undone", "lineage", "OnceInOrder"),
    Rule("told_of_lineage", "lineage", "ToldIsTrue"),
    Rule("restaged", "repush", "RowsAreFound"),
    Rule("earlier_judged", "repush", "RowsAreRight"),
    Rule("covers_head", "repush", "RowsAreRight"),
    Rule("open_only", "repush", "FilesAreThere"),
    Rule("over_first", "repush", "CanGoOn"),
    Rule("base_kept", "repush", "CanGoOn"),
    Rule("alter_seen", "alter", "ChecksHold"),
    Rule("brought_seen", "alter", "RowsAreRight"),
    Rule("by_ids", "alter", "RowsAreRight"),
    Rule("names_meant", "alter", "RowsAreRight"),
    Rule("from_head", "alter", "EveryChangeCounts"),
    Rule("ids_stay_taken", "alter", "OneColumnAnId"),
    Rule("read_again", "alter", "ChecksHold"),
    Rule("everywhere", "unique", "OneRowAKey"),
    Rule("window_asked", "unique", "OneRowAKey"),
    Rule("buckets_meet", "unique", "RowsAreRight"),
    Rule("keys_meet", "unique", "OneRowAKey"),
    Rule("whole_number", "unique", "OneRowAKey"),
    Rule("taken_seen", "unique", "RowsAreRight"),
    Rule("one_decision", "unique", "OneRowAKey"),
    Rule("rolled_back_ends", "unique", "FilesAreThere"),
    Rule("left_named", "unique", "NoOrphans"),
    Rule("arbitrate", "noputif", "INV_01"),
    Rule("copy_first", "noputif", "INV_03"),
)


def main() -> int:
    """Check everything, or what is named; give 0 only if all came out as it must."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="models or rules; all if none is named")
    parser.add_argument("--long", action="store_true", help="the large models")
    parser.add_argument("--short", action="store_true", help="a few models and rules")
    parser.add_argument("--write", action="store_true", help="bring docs/spec/model.md up to date")
    parser.add_argument("--story", action="store_true", help="print each counterexample, in full")
    given = parser.parse_args()
    try:
        tlc = find_tlc(os.environ)
    except TlcMissingError as missing:
        print(f"not checked: {missing}")
        return 1 if os.environ.get("CI") == "true" else 0
    if given.long:
        large = replace(tlc, heap=LONG_HEAP)
        chosen = {n: p for n, p in models("long").items() if not given.names or n in given.names}
        return 0 if check_models(large, chosen, LONG_S, jit=True) else 1
    wanted = set(given.names)
    chosen = {name: path for name, path in models().items() if not wanted or name in wanted}
    rules = [rule for rule in RULES if not wanted or rule.name in wanted]
    if given.short:
        chosen, rules = {name: chosen[name] for name in SHORT_MODELS}, rules[::SHORT_RULES]
    good, bad = check_models(tlc, chosen, MODEL_S), check_rules(tlc, rules, story=given.story)
    if good is None or bad is None:
        return 1
    if wanted:
        return 0
    rows = [*good, "", *bad]
    fine = page_has(rows) if given.short else page_is_current(rows, write=given.write)
    return 0 if fine else 1


def digest() -> str:
    """Return the line of the page that tells of which specification it is."""
    files = [*SPEC.glob("*.tla"), *(SPEC / "models").glob("*.cfg")]
    texts = [path.read_text(encoding="utf-8") for path in sorted(files)]
    found = hashlib.sha256("\0".join([*texts, *map(repr, RULES)]).encode()).hexdigest()
    return f"Found of the specification `{found[:16]}`."


def models(folder: str = "models") -> dict[str, Path]:
    """Return the configurations of the models by name."""
    place = SPEC / folder if folder == "models" else SPEC / "models" / folder
    return {path.stem: path for path in sorted(place.glob("*.cfg"))}


def check_models(
    tlc: Tlc, chosen: dict[str, Path], limit_s: float, *, jit: bool = False
) -> list[str] | None:
    """Check that each model holds; give the rows of the page, None if one does not."""
    rows = ["| model | actors and events | states |", "|---|---|---|"]
    fine = True
    for name, path in chosen.items():
        config = path.read_text(encoding="utf-8")
        module = module_of(config)
        result = run(tlc, [module], module.stem, config, limit_s=limit_s, jit=jit)
        verdict = "holds" if result.complete else f"FAILED: {result.broken or 'did not end'}"
        report(name, result, verdict)
        if not result.complete:
            print(result.text[-4000:])
            fine = False
        rows.append(f"| `{name}` | {about(config)} | {result.states:,} |")
    return rows if fine else None


def check_rules(tlc: Tlc, rules: list[Rule], *, story: bool = False) -> list[str] | None:
    """Check that each rule is needed; give the rows of the page, None if one is not."""
    rows = ["| rule left out | model | breaks | steps |", "|---|---|---|---|"]
    fine = True
    for rule in rules:
        config = without(models()[rule.model].read_text(encoding="utf-8"), rule.name)
        module = module_of(config)
        result = run(tlc, [module], module.stem, config, limit_s=MODEL_S, jit=False)
        as_said = result.broken == rule.breaks
        found = result.broken or ("NOTHING" if result.complete else "AN ERROR")
        verdict = f"breaks {found} in {result.steps} steps"
        report(
            f"{rule.model} without {rule.name}", result, verdict if as_said else f"NOT {verdict}"
        )
        if story:
            print(result.text)
        if not as_said:
            print(f"it should break {rule.breaks}\n{result.text[-2000:]}")
            fine = False
        rows.append(f"| `{rule.name}` | `{rule.model}` | {rule.breaks} | {result.steps} |")
    return rows if fine else None


def report(name: str, result: Result, verdict: str) -> None:
    """Print one row."""
    print(f"{name:<42}{result.states:>10,} states {result.seconds:7.1f} s   {verdict}", flush=True)


def module_of(config: str) -> Path:
    """Find the module that a configuration is of, as its first comment says; else commit.tla."""
    named = re.search(r"\(module `(\w+)`\)", about(config))
    return SPEC / f"{named[1]}.tla" if named else MODULE


def about(config: str) -> str:
    """Return the comment that a configuration begins with."""
    lines = config.split("\n")
    count = next(at for at, line in enumerate(lines) if not line.startswith("\\*"))
    return " ".join(line.removeprefix("\\*").strip() for line in lines[:count])


def without(config: str, rule: str) -> str:
    """Leave a rule out."""
    changed = config.replace("Without = {}", f'Without = {{"{rule}"}}')
    if changed == config:
        message = "the configuration has no line Without = {}"
        raise ValueError(message)
    return changed


def page_has(rows: list[str]) -> bool:
    """Tell whether the page is of this specification, and says what was found of a part of it."""
    known = PAGE.read_text(encoding="utf-8").splitlines()
    missing = [row for row in [digest(), *rows] if row not in known]
    for row in missing:
        print(f"{PAGE.name} lacks {row!r}; run: make spec ARGS=--write")
    return not missing


def page_is_current(rows: list[str], *, write: bool) -> bool:
    """Compare the page with what was found, or write it."""
    text = PAGE.read_text(encoding="utf-8")
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    wanted = "\n".join([head + BEGIN, "", *rows, "", digest(), "", END + tail])
    if text == wanted:
        return True
    if write:
        PAGE.write_text(wanted, encoding="utf-8")
        return True
    print(f"{PAGE.name} says something else; run: make spec ARGS=--write")
    return False


if __name__ == "__main__":
    sys.exit(main())
