"""The checks of a table as its columns change (RFC 0027)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import assert_never

from plait.errors import PredicateError, SchemaError
from plait.expr.checks import (
    bound_check,
    checked_columns,
    renamed_check,
    require_own_names,
)
from plait.model.schema import CHECKS_MAX, Check, Schema
from plait.model.steps import (
    AddCheck,
    ColumnStep,
    DropCheck,
    DropColumn,
    RenameColumn,
    path_parts,
)


def with_check(schema: Schema, step: AddCheck | DropCheck) -> Schema:
    """Return a schema with one check more or less.

    Raises:
        SchemaError: the name is taken, or there is no such check.
        PredicateError: the condition is not understood, or does not fit the columns.
    """
    names = [each.name.lower() for each in schema.checks]
    match step:
        case AddCheck(name, text):
            if not name or name.lower() in names:
                message = (
                    f"there is a constraint {name!r} already" if name else "a check has no name"
                )
                raise SchemaError(message, hint="give it another name", constraint=name)
            if len(names) >= CHECKS_MAX:
                message = f"the table has {CHECKS_MAX} constraints, and may have no more"
                hint = "combine some with AND, and drop those"
                raise SchemaError(message, hint=hint, constraint=name)
            check = Check(name, text.strip())
            require_own_names(check.predicate, schema.arrow)
            bound_check(check, schema.arrow)
            return replace(schema, checks=(*schema.checks, check))
        case DropCheck(name):
            if name.lower() not in names:
                message = f"the table has no constraint {name!r}"
                known = ", ".join(each.name for each in schema.checks)
                hint = f"its constraints: {known}" if known else "it has none"
                raise SchemaError(message, hint=hint, constraint=name)
            kept = tuple(each for each in schema.checks if each.name.lower() != name.lower())
            return replace(schema, checks=kept)
        case _:
            assert_never(step)


def checks_after(before: Schema, step: ColumnStep, schema: Schema) -> Schema:
    """Return a schema after a step, with the checks of before over its columns.

    Raises:
        SchemaError: the step takes away, or gives another name to, what a check looks at.
    """
    if not before.checks:
        return schema
    return replace(
        schema, checks=tuple(_after(each, before, step, schema) for each in before.checks)
    )


def _after(check: Check, before: Schema, step: ColumnStep, schema: Schema) -> Check:
    if isinstance(step, (DropColumn, RenameColumn)):
        column, *members = path_parts(step.path)
        if column in checked_columns(check, before.arrow):
            if isinstance(step, DropColumn) or members:
                message = f"{step.path!r} stays, because the constraint {check.name!r} looks at it"
                hint = f"drop the constraint first: {check.predicate}"
                raise SchemaError(message, hint=hint, column=step.path, constraint=check.name)
            check = renamed_check(check, column, step.name)
    try:
        bound_check(check, schema.arrow)
    except PredicateError as error:
        message = f"the constraint {check.name!r} does not fit the columns: {error.message}"
        hint = "drop the constraint first, and add it again as it is to be"
        raise SchemaError(message, hint=hint, constraint=check.name) from error
    return check


def create_checks(schema: Schema, checks: Mapping[str, str]) -> Schema:
    """Return the first schema of a table with its checks.

    Raises:
        SchemaError, PredicateError: as ``with_check``.
    """
    for name, predicate in checks.items():
        schema = with_check(schema, AddCheck(name, predicate))
    return schema
