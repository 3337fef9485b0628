SET @snowmint_other = (SELECT SUBSTR(routine_comment, CHAR_LENGTH('{{mark}}') + 1) FROM information_schema.routines
    WHERE routine_schema = {{database_name}} AND routine_name = '{{prefix}}_time'
    AND routine_comment LIKE '{{mark}}%' AND routine_comment <> '{{mark}}{{layout}}');
-- MySQL has no way to fail with a text outside of a stored program: the text is a statement that it cannot parse. Its error shows
-- 80 characters of it.
SET @snowmint_check = IF(@snowmint_other IS NULL, 'DO 0',
    'another layout is installed: use another --prefix, or remove it with --drop');
PREPARE snowmint_check FROM @snowmint_check;
EXECUTE snowmint_check;
DEALLOCATE PREPARE snowmint_check;

-- A server with a binary log may refuse functions (ERROR 1419): found out before anything is dropped.
CREATE FUNCTION {{name}}_snowmint_check() RETURNS BIGINT DETERMINISTIC NO SQL SQL SECURITY INVOKER RETURN 1;
DROP FUNCTION {{name}}_snowmint_check;