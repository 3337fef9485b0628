/** Ids of MyBatis-Plus entities from Snowmint. */
package io.snowmint.mybatisplus;
