package io.snowmint.jackson;

import com.fasterxml.jackson.annotation.JacksonAnnotationsInside;
import com.fasterxml.jackson.databind.annotation.JsonDeserialize;
import com.fasterxml.jackson.databind.annotation.JsonSerialize;

import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;

/**
 * Does for each {@code Long} of a collection, or value of a map, what {@link JsonId} does for one.
 * Not for a {@code long[]}, to which Jackson applies only a {@link LongsAsStringsModule}.
 */
@Retention(RetentionPolicy.RUNTIME)
@Target({ElementType.FIELD, ElementType.METHOD, ElementType.PARAMETER})
@JacksonAnnotationsInside
@JsonSerialize(contentUsing = IdSerializer.class)
@JsonDeserialize(contentUsing = IdDeserializer.class)
public @interface JsonIds {}
