#!/bin/bash
# Keeps the rows of a table from a topic of a Millrace publish task with `format: json`, and prints them as JSON.
#
#     apt-get install $(cat packages.txt)
#     bash program.sh localhost:9092 - public.shop.orders          # the registry is not used
#
# kcat writes each record as a line of JSON, and SQLite keeps the last one of each key. Header `n` counts the records of
# each partition from 1, without gaps: a record that is missing ends the program.
set -euo pipefail
bootstrap=$1 topic=$3

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
kcat -C -q -J -e -b "$bootstrap" -t "$topic" -o beginning -X isolation.level=read_committed -X check.crcs=true \
  > "$folder/lines"

sqlite3 "$folder/rows.db" <<SQL
CREATE TABLE lines (line TEXT);
.mode ascii
.separator "\037" "\n"
.import $folder/lines lines
CREATE TABLE records AS
  SELECT line->>'partition' AS part, line->>'offset' AS at, line->>'key' AS id, line->>'payload' AS row, (
    -- the headers are a list of names, each followed by its value
    SELECT CAST(line->'headers'->>(name.key + 1) AS INTEGER) FROM json_each(line, '\$.headers') AS name
    WHERE name.value = 'n' AND name.key % 2 = 0
  ) AS n FROM lines;
CREATE VIEW jumps AS
  SELECT * FROM (
    SELECT part, n, lag(n, 1, n - 1) OVER (PARTITION BY part ORDER BY at) AS before FROM records
  ) WHERE n IS NOT before + 1;
CREATE VIEW rows AS -- of each key the row of its last record; a record without one is a tombstone
  SELECT row FROM (SELECT row, max(at) FROM records GROUP BY id) WHERE row IS NOT NULL;
SQL

jump=$(sqlite3 "$folder/rows.db" "SELECT format('partition %d: n is %d after %d', part, n, before) FROM jumps LIMIT 1")
if [ -n "$jump" ]; then
  echo "$jump" >&2
  exit 1
fi
sqlite3 "$folder/rows.db" "SELECT row FROM rows"
sqlite3 "$folder/rows.db" "SELECT format('%d records, %d rows', (SELECT count(*) FROM records), (SELECT count(*) FROM rows))" >&2
