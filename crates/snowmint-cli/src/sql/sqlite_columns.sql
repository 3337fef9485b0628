-- Columns that read the ids of {{table}}.{{column}}, layout {{layout}}
-- SQLite 3.31 or later. Columns are computed when they are read and take no room. Run once: a column that exists is an error.
-- A number that is not an id of the layout gives NULL.

ALTER TABLE {{table}} ADD COLUMN {{prefix}}_time TEXT GENERATED ALWAYS AS (CASE WHEN {{is_id}} THEN
    strftime('%Y-%m-%dT%H:%M:%S', ({{unix_ms}}) / 1000, 'unixepoch') || printf('.%03dZ', ({{unix_ms}}) % 1000)
END) VIRTUAL;
