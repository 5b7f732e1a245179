"""Every failure that a user can meet, as one tree; the exit code sits on the class.

AuditError
├── InvalidPlan      2  the plan, the command line or an input file is wrong; nothing was started
├── RecordError      2  a record cannot be read, or its digests do not match
├── EngineError      5  a server did not start, died, or stalled
│   └── PortShared   5  another process answers on a port that should be ours
├── StorageError     5  the record could not be written (disk full, permissions)
└── Interrupted      5  the audit was stopped by a signal; what was measured is kept

A message is one sentence in three parts: what was seen, what was expected, what to do.
"""

from __future__ import annotations

from typing import ClassVar


class AuditError(Exception):
    """Base of all expected failures. Printed without a traceback (`--debug` shows it)."""

    exit_code: ClassVar[int] = 5

    def __init__(self, seen: str, *, expected: str = "", todo: str = "") -> None:
        self.seen, self.expected, self.todo = seen, expected, todo
        parts = [seen.rstrip(".")]
        if expected:
            parts.append(f"expected {expected.rstrip('.')}")
        if todo:
            parts.append(todo.rstrip("."))
        super().__init__("; ".join(parts) + ".")


class InvalidPlan(AuditError):
    exit_code = 2


class RecordError(AuditError):
    exit_code = 2


class EngineError(AuditError):
    exit_code = 5


class PortShared(EngineError):
    """A reply carried another server's nonce, or a port answered before our process could."""


class StorageError(AuditError):
    exit_code = 5


class Interrupted(AuditError):
    exit_code = 5
