package io.snowmint.jackson;

import com.fasterxml.jackson.databind.ser.std.ToStringSerializerBase;

/** Writes an id as its digits, in a string. */
final class IdSerializer extends ToStringSerializerBase {
    private static final long serialVersionUID = 1;

    IdSerializer() {
        super(Long.class);
    }

    @Override
    public String valueToString(Object id) {
        return id.toString();
    }
}
