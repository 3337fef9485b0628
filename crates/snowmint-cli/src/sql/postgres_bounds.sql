
-- The smallest and the largest id of the tick that contains an instant:
-- WHERE id >= {{prefix}}_first_id(now() - interval '1 day')
CREATE OR REPLACE FUNCTION {{name}}_outside(at timestamptz) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $snowmint$
BEGIN
    RAISE EXCEPTION 'no id has the time %: the layout has timestamps from {{first}} to {{last}}', at
        USING ERRCODE = 'datetime_field_overflow';
END
$snowmint$;

CREATE OR REPLACE FUNCTION {{name}}_first_id(at timestamptz) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
    WHEN at IS NULL THEN NULL
    WHEN extract(epoch FROM at AT TIME ZONE 'UTC') * 1000 >= {{epoch_ms}}
     AND extract(epoch FROM at AT TIME ZONE 'UTC') * 1000 < {{end_ms}}
    THEN {{first_id}}
    ELSE {{name}}_outside(at)
END;

CREATE OR REPLACE FUNCTION {{name}}_last_id(at timestamptz) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
    WHEN at IS NULL THEN NULL
    WHEN extract(epoch FROM at AT TIME ZONE 'UTC') * 1000 >= {{epoch_ms}}
     AND extract(epoch FROM at AT TIME ZONE 'UTC') * 1000 < {{end_ms}}
    THEN {{first_id}} + {{below_time}}
    ELSE {{name}}_outside(at)
END;
