/** Ids of Snowmint by the interface of Leaf. */
package io.snowmint.leaf;
