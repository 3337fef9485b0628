
-- The smallest id of an instant, and the smallest one after it, for the index of {{column}}:
--   WHERE {{column}} >= ((CAST(strftime('%s', 'now', '-1 day') AS INTEGER) * 1000 - {{epoch_ms}}) / {{tick_ms}}) << {{shift}}
--   WHERE {{column}} >= ((CAST(strftime('%s', '2026-11-01') AS INTEGER) * 1000 - {{epoch_ms}}) / {{tick_ms}}) << {{shift}}
--     AND {{column}} <  ((CAST(strftime('%s', '2026-12-01') AS INTEGER) * 1000 - {{epoch_ms}}) / {{tick_ms}}) << {{shift}}
