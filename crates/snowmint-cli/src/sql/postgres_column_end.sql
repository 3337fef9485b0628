
FOREACH busy IN ARRAY steps LOOP
    RAISE NOTICE '%', busy;
    EXECUTE busy;
END LOOP;
EXCEPTION WHEN lock_not_available THEN
    RAISE EXCEPTION '% is in use: no lock within %', busy, current_setting('lock_timeout') USING ERRCODE = 'lock_not_available',
        HINT = 'An open transaction uses it (pg_stat_activity). Run this again, or wait longer, while others wait behind you: '
            'SET lock_timeout = ''1min''.';
END;

PERFORM set_config('lock_timeout', lock_timeout, true);
PERFORM set_config('row_security', row_security, true);
PERFORM set_config('search_path', path, true);
END
$convert$;
