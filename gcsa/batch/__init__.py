"""The one way through many files, of classify, embed, segment, transcribe and orient.

`Work` says what a command does with an item, such as a file; `Run` does all of them. It passes over what an earlier run finished by the same
weights and options, which a `Ledger` remembers, goes on after a bad item, which it names on stderr at once, and writes the results down as they
come. SIGINT and SIGTERM let the item be finished first; the same command then goes on where it stopped. `gcsa.cluster` does the same in several
processes.
"""

from gcsa.batch.ledger import stamp
from gcsa.batch.pace import Pace, say
from gcsa.batch.run import How, Outcome, Run
from gcsa.batch.work import Engine, Result, Work, attempt

__all__ = ["Engine", "How", "Outcome", "Pace", "Result", "Run", "Work", "attempt", "say", "stamp"]
