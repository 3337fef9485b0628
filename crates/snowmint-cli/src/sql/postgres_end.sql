
PERFORM set_config('search_path', path, true);
END
$install$;
