ALTER TABLE {{table}} ADD COLUMN {{prefix}}_{{field}} INTEGER GENERATED ALWAYS AS (CASE WHEN {{is_id}} THEN {{value}} END) VIRTUAL;
