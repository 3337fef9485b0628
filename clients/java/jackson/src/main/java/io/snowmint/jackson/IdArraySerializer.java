package io.snowmint.jackson;

import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.databind.SerializerProvider;
import com.fasterxml.jackson.databind.ser.std.StdSerializer;

import java.io.IOException;

/** Writes an array of ids as a list of strings. */
final class IdArraySerializer extends StdSerializer<long[]> {
    private static final long serialVersionUID = 1;

    IdArraySerializer() {
        super(long[].class);
    }

    @Override
    public boolean isEmpty(SerializerProvider provider, long[] ids) {
        return ids.length == 0;
    }

    @Override
    public void serialize(long[] ids, JsonGenerator generator, SerializerProvider provider)
            throws IOException {
        generator.writeStartArray(ids, ids.length);
        for (long id : ids) {
            generator.writeString(Long.toString(id));
        }
        generator.writeEndArray();
    }
}
