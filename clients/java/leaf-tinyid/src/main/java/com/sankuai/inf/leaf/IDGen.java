package com.sankuai.inf.leaf;

import com.sankuai.inf.leaf.common.Result;

/** Leaf's interface of a generator. */
public interface IDGen {
    /**
     * Returns the next id of a key. It throws nothing: the status of the result says whether there
     * is an id.
     *
     * @param key the key, Leaf's {@code biz_tag}
     * @return the id, or the code of an error
     */
    Result get(String key);

    /**
     * Prepares the generator.
     *
     * @return whether it can be used
     */
    boolean init();
}
