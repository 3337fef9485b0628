/** The exception of TinyID's client. */
package com.xiaoju.uemc.tinyid.base.exception;
