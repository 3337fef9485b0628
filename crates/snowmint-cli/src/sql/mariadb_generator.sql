
-- Make ids of worker {{node}}. MariaDB 10.6 or later, not Galera. Of all databases, only this one may make ids of this worker.
--
--   CREATE TABLE orders (id BIGINT DEFAULT 0 PRIMARY KEY, ...);
--   CREATE TRIGGER orders_id BEFORE INSERT ON orders FOR EACH ROW
--       SET NEW.id = COALESCE(NULLIF(NEW.id, 0), {{prefix}}_next_id());
--   SELECT {{prefix}}_next_id();
--
-- A DEFAULT may use a sequence but no stored function, and MariaDB stores it with the name of the schema: a dump of such a table
-- does not restore (ERROR 1100), and the copy would draw from the original. A trigger, and the functions below, use the sequence
-- of their own schema.
--
-- A copy of the database (a restored dump, a clone) has the same worker: beside the original it makes the same ids. Before it
-- inserts rows, run this script there with another --worker. mariadb-dump leaves these functions out, so inserts into the copy
-- fail until then; with --routines the copy has them, and makes ids of the same worker.
--
-- The cursor is a sequence: a tick, shifted left by the {{sequence_bits}} bits of the sequence, plus the sequence. An id is a
-- function of its cursor and of the worker. No cursor is used twice: NEXTVAL only grows, and SETVAL ignores a value that is not
-- above all earlier ones, both under one lock inside of the server. Neither is rolled back or waits for a transaction.
--
-- {{prefix}}_catch_up() moves the cursor to the clock. The event {{prefix}}_clock calls it once a second, so that times are up to a
-- second late. It needs SET GLOBAL event_scheduler = ON. Without it ids stay unique and increasing, but their times stand still.
-- If the clock goes back, ids continue from the cursor.
--
-- After a crash, ids of committed transactions are not repeated: the sequence was logged before their commit. After a failover to
-- a replica: ALTER EVENT {{event}} ENABLE. The replica must have everything; otherwise install another worker.

CREATE SEQUENCE IF NOT EXISTS {{name}}_cursor START WITH 1 MINVALUE 1 MAXVALUE {{max_cursor}} INCREMENT BY 1 CACHE {{cache}} NOCYCLE
    COMMENT='{{mark}}{{layout}}';

-- Dynamic SQL, since SETVAL takes a literal only; a function could not run it. The sequence starts at random, in the lower half: if
-- it always started with 0, id % n would pick one shard.
CREATE OR REPLACE PROCEDURE {{name}}_catch_up() MODIFIES SQL DATA SQL SECURITY DEFINER
EXECUTE IMMEDIATE CONCAT('DO SETVAL({{prefix}}_cursor, ',
    ((TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 1000 - {{epoch_ms}}) DIV {{tick_ms}}) << {{sequence_bits}}
        | FLOOR(RAND() * {{roll}}), ', 0)');

CREATE OR REPLACE FUNCTION {{name}}_next_id() RETURNS BIGINT NOT DETERMINISTIC MODIFIES SQL DATA SQL SECURITY DEFINER
RETURN {{draw}};

CALL {{name}}_catch_up();

CREATE OR REPLACE EVENT {{event}} ON SCHEDULE EVERY 1 SECOND
DO CALL {{prefix}}_catch_up();
