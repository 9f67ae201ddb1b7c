"""Everything that was ever released from a data set, on disk: reserve, release, settle."""

from tacit.ledger.account import Account, Charge
from tacit.ledger.book import Entry
from tacit.ledger.course import Block, Course
from tacit.ledger.ledger import Ledger
from tacit.ledger.reservation import Reservation
from tacit.randomness import fingerprint, is_secret_salt, new_salt, salted_fingerprint

__all__ = [
    "Account",
    "Block",
    "Charge",
    "Course",
    "Entry",
    "Ledger",
    "Reservation",
    "fingerprint",
    "is_secret_salt",
    "new_salt",
    "salted_fingerprint",
]
