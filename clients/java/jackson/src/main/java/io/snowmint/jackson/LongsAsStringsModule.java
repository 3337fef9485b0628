package io.snowmint.jackson;

import com.fasterxml.jackson.databind.module.SimpleModule;

/**
 * Writes every {@code long}, {@code Long} and {@code long[]} as JSON strings. Jackson reads strings
 * and numbers without it.
 *
 * <p>Use it if nearly all of them are ids. It also changes counts and times; {@link JsonId} changes
 * one property only.
 *
 * <pre>{@code
 * JsonMapper.builder().addModule(new LongsAsStringsModule()).build();
 * }</pre>
 */
public final class LongsAsStringsModule extends SimpleModule {
    private static final long serialVersionUID = 1;

    /** Creates the module. */
    public LongsAsStringsModule() {
        super("snowmint-longs-as-strings");
        addSerializer(Long.class, new IdSerializer());
        addSerializer(Long.TYPE, new IdSerializer());
        addSerializer(long[].class, new IdArraySerializer());
    }
}
