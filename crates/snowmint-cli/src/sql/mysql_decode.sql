-- Read ids of the layout {{layout}}
-- {{database}}. Safe to run again. Each statement stands by itself and needs no DELIMITER.
-- Times are DATETIME in UTC. A number that is not an id of the layout, or a time outside of the layout, gives NULL.

{{check_server}}-- Functions of another layout would read the ids of this one as other times and workers. A comment says which layout is installed.
{{check_layout}}

{{create}} {{name}}_time(id BIGINT) RETURNS DATETIME(3) DETERMINISTIC NO SQL SQL SECURITY INVOKER COMMENT '{{mark}}{{layout}}'
RETURN CASE WHEN {{has_time}} THEN
    TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ({{unix_ms}}) DIV 1000 SECOND
                                   + INTERVAL ({{unix_ms}}) MOD 1000 * 1000 MICROSECOND
END;
