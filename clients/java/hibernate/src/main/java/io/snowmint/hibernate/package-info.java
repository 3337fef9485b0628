/** Ids of Hibernate entities from Snowmint. */
package io.snowmint.hibernate;
