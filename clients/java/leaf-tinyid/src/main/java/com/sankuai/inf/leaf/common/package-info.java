/** The results of Leaf's generators. */
package com.sankuai.inf.leaf.common;
