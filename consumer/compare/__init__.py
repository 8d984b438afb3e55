"""Compares every row of every table of source and target. The servers digest all values; this code decodes none.

tables     which tables are compared
table      a table on both sides, and how its rows are named
structure  how the definitions of both sides differ
compare    divides the tables into chunks and gives them to a pool of sessions
pool       threads of this process, or executors of Spark
chunk      one chunk: sums, then digests of rows, then looks at each suspect
settle     the rule by which a row differs under writes
stored     what has been compared, on the target
show       differences with both rows and the SQL that repairs them
repair     writes the source's row to the target, so that it can't race with apply
"""

from millrace.consumer.compare.compare import Rules, Throttle, Work, compare_sets
from millrace.consumer.compare.pool import Executors, Threads
from millrace.consumer.compare.result import Comparison, Difference
from millrace.consumer.compare.sides import Ends
from millrace.consumer.compare.stored import State
from millrace.consumer.compare.structure import Change
