/** Keys of ShardingSphere from Snowmint. */
package io.snowmint.shardingsphere;
