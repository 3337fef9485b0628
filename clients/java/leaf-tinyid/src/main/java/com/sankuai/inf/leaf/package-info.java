/** The interface of Leaf's generators, for programs that move to Snowmint. */
package com.sankuai.inf.leaf;
