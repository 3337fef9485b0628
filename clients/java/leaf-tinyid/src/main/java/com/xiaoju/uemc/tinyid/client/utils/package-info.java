/** The calls of TinyID's client, for programs that move to Snowmint. */
package com.xiaoju.uemc.tinyid.client.utils;
