"""What was ever released from a data set, kept where it outlives every process: reserve, release, settle."""

from tacit.ledger.account import Account, Charge
from tacit.ledger.book import Entry
from tacit.ledger.booking import Booking
from tacit.ledger.course import Block, Course
from tacit.ledger.fingerprint import fingerprint
from tacit.ledger.ledger import Ledger

__all__ = ["Account", "Block", "Booking", "Charge", "Course", "Entry", "Ledger", "fingerprint"]
