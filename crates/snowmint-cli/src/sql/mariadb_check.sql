SET @snowmint_other = (SELECT MAX(SUBSTR(mark, CHAR_LENGTH('{{mark}}') + 1)) FROM (
    SELECT routine_comment AS mark FROM information_schema.routines
    WHERE routine_schema = {{database_name}} AND routine_name = '{{prefix}}_time'
    UNION ALL SELECT table_comment FROM information_schema.tables
    WHERE table_schema = {{database_name}} AND table_name = '{{prefix}}_cursor') AS installed
    WHERE mark LIKE '{{mark}}%' AND mark <> '{{mark}}{{layout}}');
EXECUTE IMMEDIATE IF(@snowmint_other IS NULL, 'DO 0', CONCAT('SIGNAL SQLSTATE ''45000'' SET MESSAGE_TEXT = ''',
    '{{prefix}} has the layout `', @snowmint_other, '`: use another --prefix and worker, or first remove it with --drop'''));