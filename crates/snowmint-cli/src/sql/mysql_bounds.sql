
-- The smallest and the largest id of the tick that contains an instant:
-- WHERE id >= {{prefix}}_first_id(UTC_TIMESTAMP() - INTERVAL 1 DAY)
{{create}} {{name}}_first_id(at DATETIME(6)) RETURNS BIGINT DETERMINISTIC NO SQL SQL SECURITY INVOKER
RETURN CASE
    WHEN TIMESTAMPDIFF(MICROSECOND, '1970-01-01', at) >= {{epoch_ms}} * 1000
     AND TIMESTAMPDIFF(MICROSECOND, '1970-01-01', at) < {{end_ms}} * 1000
    THEN {{first_id}}
END;

{{create}} {{name}}_last_id(at DATETIME(6)) RETURNS BIGINT DETERMINISTIC NO SQL SQL SECURITY INVOKER
RETURN CASE
    WHEN TIMESTAMPDIFF(MICROSECOND, '1970-01-01', at) >= {{epoch_ms}} * 1000
     AND TIMESTAMPDIFF(MICROSECOND, '1970-01-01', at) < {{end_ms}} * 1000
    THEN {{first_id}} + {{below_time}}
END;
