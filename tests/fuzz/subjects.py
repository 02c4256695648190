"""What is fuzzed, by name."""

from tests.fuzz import commands, files, pickles, propagation, queries, rules
from tests.fuzz.loop import Subject

SUBJECTS = {
    "queries": Subject(queries.check),
    "propagation": Subject(propagation.check),
    "rules": Subject(rules.check),
    "files": Subject(files.check, files.samples),
    "pickles": Subject(pickles.check),
    "commands": Subject(commands.check, commands.sample_run),
}
