"""The paired two-by-two table, and the same table when some answers are missing."""

from __future__ import annotations

from dataclasses import dataclass, fields

from auditor.stats.checks import require_count


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedTable:
    """Counts of items that both arms answered, each ≥ 0, else ValueError. All 0: no item has both answers."""

    both: int
    """a: right in both arms."""
    candidate_only: int
    """b: right in the candidate alone."""
    reference_only: int
    """c: right in the reference alone."""
    neither: int
    """d: wrong in both arms."""

    def __post_init__(self) -> None:
        for field in fields(self):
            require_count(f"the count '{field.name.replace('_', ' ')}'", getattr(self, field.name))

    @property
    def n(self) -> int:
        """Pairs in the table."""
        return self.both + self.candidate_only + self.reference_only + self.neither

    @property
    def discordant(self) -> int:
        """m = b + c: pairs in which one arm alone was right."""
        return self.candidate_only + self.reference_only

    @property
    def candidate_right(self) -> int:
        """a + b."""
        return self.both + self.candidate_only

    @property
    def reference_right(self) -> int:
        """a + c."""
        return self.both + self.reference_only

    @property
    def difference(self) -> float:
        """δ = p_candidate − p_reference = (b − c)/n, from −1 to 1. ValueError without a pair."""
        if self.n == 0:
            raise ValueError("All counts are 0: expected at least one pair of answers.")
        return (self.candidate_only - self.reference_only) / self.n

    def exchanged(self) -> PairedTable:
        """The table with the arms' names exchanged."""
        return PairedTable(
            both=self.both,
            candidate_only=self.reference_only,
            reference_only=self.candidate_only,
            neither=self.neither,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingAnswers:
    """Planned items of which at least one answer never arrived (transport failures, not wrong answers)."""

    candidate_when_reference_right: int = 0
    """Reference right, candidate missing."""
    candidate_when_reference_wrong: int = 0
    """Reference wrong, candidate missing."""
    reference_when_candidate_right: int = 0
    """Candidate right, reference missing."""
    reference_when_candidate_wrong: int = 0
    """Candidate wrong, reference missing."""
    both: int = 0
    """Missing in both arms."""

    def __post_init__(self) -> None:
        for field in fields(self):
            require_count(f"the count of missing answers '{field.name}'", getattr(self, field.name))

    @property
    def total(self) -> int:
        """Items with a missing answer."""
        return sum(int(getattr(self, field.name)) for field in fields(self))


NONE_MISSING = MissingAnswers()


def least_favourable_to_candidate(table: PairedTable, missing: MissingAnswers) -> PairedTable:
    """Every missing answer set against the candidate: its own wrong, the reference's right; n as planned."""
    return PairedTable(
        both=table.both + missing.reference_when_candidate_right,
        candidate_only=table.candidate_only,
        reference_only=table.reference_only
        + missing.candidate_when_reference_right
        + missing.reference_when_candidate_wrong
        + missing.both,
        neither=table.neither + missing.candidate_when_reference_wrong,
    )


def most_favourable_to_candidate(table: PairedTable, missing: MissingAnswers) -> PairedTable:
    """Every missing answer set for the candidate: its own right, the reference's wrong; n as planned."""
    return PairedTable(
        both=table.both + missing.candidate_when_reference_right,
        candidate_only=table.candidate_only
        + missing.candidate_when_reference_wrong
        + missing.reference_when_candidate_right
        + missing.both,
        reference_only=table.reference_only,
        neither=table.neither + missing.reference_when_candidate_wrong,
    )
