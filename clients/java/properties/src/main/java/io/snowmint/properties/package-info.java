/** Builds clients from properties of text, for frameworks that are configured by text. */
package io.snowmint.properties;
